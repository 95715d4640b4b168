// The encoder of the elastic codec.
#pragma once

#include <span>

#include "elastiquant/base/random.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/elastic/elastic_format.h"

namespace elastiquant {

// Returns the most bytes that a frame of n floats can have. If the format lists levels, only
// their number matters.
size_t MaxElasticFrameBytes(const ElasticFormat& format, size_t n);

// Writes a whole frame and returns its size. frame.size() must be at least
// MaxElasticFrameBytes(...), and `table` must be made from format.levels.
Result<size_t> EncodeElasticFrame(const ElasticFormat& format, const LevelTable& table,
                                  std::span<const float> values, StreamKey key, Workspace& work,
                                  std::span<uint8_t> frame);

}  // namespace elastiquant
