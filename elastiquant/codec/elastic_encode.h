// The encoder of the elastic codec.
#pragma once

#include <span>

#include "elastiquant/base/random.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/elastic_format.h"

namespace elastiquant {

// Writes the payload and returns its size. `payload` has room for ElasticLayout's
// WorstCodesAt(tiles()) bytes; `table` is made from format.levels.
Result<size_t> EncodeElastic(const ElasticFormat& format, const LevelTable& table,
                             std::span<const float> values, StreamKey key, Workspace& work,
                             std::span<uint8_t> payload);

}  // namespace elastiquant
