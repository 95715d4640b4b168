// Encoding and decoding of the dither codec.
#pragma once

#include <optional>

#include "elastiquant/codec/dither/dither_format.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {

struct DitherSpec {
  double bits = 2;                       // a coordinate; 0 if `nmse` is set
  double nmse = 0;                       // of the message
  std::optional<DitherDensity> density;  // absent: chosen for each message
};

// The most NMSE of a message that is to meet a rate, which it then misses if it must.
inline constexpr double kMostDitherError = 8;

size_t MaxDitherFrameBytes(size_t n);
Result<size_t> EncodeDither(const DitherSpec& spec, std::span<const float> values,
                            StreamKey key, Workspace& work, std::span<uint8_t> frame);
Status DecodeDither(const FrameView& frame, const DecodeSink& sink, Workspace& work);

}  // namespace elastiquant
