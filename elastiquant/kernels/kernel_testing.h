// What the tests of the kernels share.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/quantize.h"

namespace elastiquant {

inline constexpr LaneKeys kTestKeys{0x12345678, 0x9ABCDEF0};
inline constexpr RandomRun kTestRun{kTestKeys, 77};
inline constexpr float kMaxFloat = std::numeric_limits<float>::max();
inline constexpr float kInfiniteFloat = std::numeric_limits<float>::infinity();

// Values of very different sizes, so that another order of summation shows: over so many powers
// of two about 1.
inline std::vector<float> ValuesOfAllSizes(size_t n, uint64_t seed = 1, int powers = 61) {
  std::vector<float> v(n);
  const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, n, 0, 0));
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t random = RandomBits(keys, i);
    const int power = static_cast<int>(random % static_cast<uint32_t>(powers)) - powers / 2;
    v[i] = std::ldexp(UniformFloat(random) - 0.5f, power);
  }
  return v;
}

}  // namespace elastiquant
