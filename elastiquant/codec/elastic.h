// The elastic codec, for schemes that are an elastic with some keys fixed.
#pragma once

#include <memory>
#include <string>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic_spec.h"

namespace elastiquant {

// `text` is what its spec() returns.
std::shared_ptr<const Codec> MakeElasticCodec(const ElasticSpec& spec, std::string text);

}  // namespace elastiquant
