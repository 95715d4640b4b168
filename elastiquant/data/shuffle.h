// A random order of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "elastiquant/base/random.h"

namespace elastiquant {

// Brings the samples into an order that is a function of `key` and of the order in which they
// come (Fisher and Yates).
inline void Shuffle(StreamKey key, std::span<int64_t> samples) {
  const LaneKeys keys = MakeLaneKeys(key);
  for (size_t i = samples.size(); i > 1; --i) {
    const uint64_t bits = RandomBits(keys, static_cast<uint32_t>(i));
    std::swap(samples[i - 1], samples[bits * i >> 32]);
  }
}

}  // namespace elastiquant
