// The elastic codec, for schemes that are an elastic with some keys fixed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic_spec.h"

namespace elastiquant {

// `text` is what its spec() returns.
std::shared_ptr<const Codec> MakeElasticCodec(const ElasticSpec& spec, std::string text);

// The format of the frames that `codec` makes of messages of n values, levels included; none if
// it is not an elastic one, or is one within a modifier such as |rotate.
std::optional<ElasticFormat> ElasticFormatFor(const Codec& codec, size_t n);

}  // namespace elastiquant
