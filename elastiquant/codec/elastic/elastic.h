// The elastic codec, for schemes that are an elastic with some keys fixed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/elastic_spec.h"

namespace elastiquant {

// `text` is what its spec() returns. by_tensor: workers exchange whole messages, whose tensors
// share no bucket (Codec::WithShapes).
std::shared_ptr<const Codec> MakeElasticCodec(const ElasticSpec& spec, std::string text,
                                              bool by_tensor = false);

// The tensors that buckets of `codec` end with; none of other codecs, and before WithShapes.
// They live as long as it does.
std::span<const TensorStart> ElasticTensors(const Codec& codec);

// The format of the frames that `codec` makes of messages of n values, levels included; none if
// it is not an elastic one, is one within a modifier such as |rotate, or fits its levels to
// each message.
std::optional<ElasticFormat> ElasticFormatFor(const Codec& codec, size_t n);

}  // namespace elastiquant
