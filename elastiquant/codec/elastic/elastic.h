// Makes the elastic codec, also for schemes that are an elastic codec with some keys fixed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/elastic_spec.h"

namespace elastiquant {

// Makes an elastic codec whose spec() returns `text`. If by_tensor is set, workers exchange
// whole messages, whose tensors share no bucket (Codec::WithShapes).
std::shared_ptr<const Codec> MakeElasticCodec(const ElasticSpec& spec, std::string text,
                                              bool by_tensor = false);

// Returns the tensors that the buckets of `codec` end with. There are none in other codecs, and
// none before WithShapes. They live as long as the codec does.
std::span<const TensorStart> ElasticTensors(const Codec& codec);

// Returns the format, levels included, of the frames that `codec` makes of messages of n
// values. There is none if it is not an elastic codec, is one within a modifier such as
// |rotate, or fits its levels to each message.
std::optional<ElasticFormat> ElasticFormatFor(const Codec& codec, size_t n);

}  // namespace elastiquant
