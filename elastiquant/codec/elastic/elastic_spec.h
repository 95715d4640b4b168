// The spec string of the elastic codec.
#pragma once

#include <string>
#include <string_view>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/elastic_format.h"
#include "elastiquant/codec/elastic/level_fit.h"
#include "elastiquant/codec/spec.h"

namespace elastiquant {

// "elastic:bits=4,levels=fit,norm=linf,bucket=512,rounding=stochastic" and at most one of the
// modifiers |rans and |elias. With a p and no levels these are exp, with a modifier and neither
// uniform.
struct ElasticSpec {
  ElasticFormat format;
  bool auto_p = true;  // p by OptimalRatio for the length of a bucket
  // Levels fitted to each message (level_fit.h): then those of `format` only tell how many.
  bool fit = false;

  // Whether a fit may lack a zero. An entropy coder lives on zeros: at the same bytes more
  // levels with a zero have as little variance.
  bool may_lack_zero() const {
    return fit && format.coding == IndexCoding::kFixed && format.bits <= kMostBitsWithoutZero;
  }

  // Whether p, and so the levels, depend on the length of the message.
  bool levels_by_message() const {
    return format.family == LevelFamily::kExponential && auto_p && format.bucket == 0;
  }
};

// Errors name the codec as `spec` does: others are read as an elastic with some keys fixed.
Result<ElasticSpec> ParseElasticSpec(const Spec& spec);
std::string_view CodingText(IndexCoding coding);  // "|rans", "|elias" or ""
std::string ElasticSpecText(const ElasticSpec& spec);

// Sets p and the levels of the exponential family for buckets of `length` coordinates.
void ResolveRatio(size_t length, ElasticFormat* format);

CodecInfo ElasticInfo();

}  // namespace elastiquant
