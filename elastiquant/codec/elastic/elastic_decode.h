// The decoder of the elastic codec.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "elastiquant/codec/elastic/elastic_format.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {

// Decodes the payload of a frame after checking its parameters, sizes, norms and codes.
Status DecodeElastic(const FrameView& frame, const DecodeSink& sink, Workspace& work);

// Returns the format of a frame that lists its levels, except for its tensors. There is none
// for any other frame.
std::optional<ElasticFormat> ListedFormat(std::span<const uint8_t> frame);

}  // namespace elastiquant
