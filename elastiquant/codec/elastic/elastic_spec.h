// The spec string of the elastic codec.
#pragma once

#include <string>
#include <string_view>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/elastic_format.h"
#include "elastiquant/codec/elastic/level_fit.h"
#include "elastiquant/codec/spec.h"

namespace elastiquant {

// What a spec such as "elastic:bits=4,levels=fit,norm=linf,bucket=512,rounding=stochastic"
// says. At most one of the modifiers |rans and |elias may follow. If it gives no levels, they
// are exp if it gives a p, and uniform if it gives no p but a modifier.
struct ElasticSpec {
  ElasticFormat format;
  bool auto_p = true;  // whether p is the OptimalRatio for the length of a bucket
  // Whether levels are fitted to each message (level_fit.h). Then those of `format` only tell
  // how many there are.
  bool fit = false;

  // Whether a fit may lack a zero. An entropy coder lives on zeros: with the same number of
  // bytes, more levels with a zero have as little variance.
  bool may_lack_zero() const {
    return fit && format.coding == IndexCoding::kFixed && format.bits <= kMostBitsWithoutZero;
  }

  // Whether p, and so the levels, depend on the length of the message.
  bool levels_by_message() const {
    return format.family == LevelFamily::kExponential && auto_p && format.bucket == 0;
  }
};

// Reads a spec. Errors name the codec as `spec` does, because other codecs are read as an
// elastic codec with some keys fixed.
Result<ElasticSpec> ParseElasticSpec(const Spec& spec);
// Returns "|rans", "|elias" or "".
std::string_view CodingText(IndexCoding coding);
std::string ElasticSpecText(const ElasticSpec& spec);

// Sets p and the levels of the exponential family for buckets of `length` coordinates.
void ResolveRatio(size_t length, ElasticFormat* format);

CodecInfo ElasticInfo();

}  // namespace elastiquant
