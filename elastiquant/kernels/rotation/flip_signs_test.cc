#include "elastiquant/kernels/rotation/flip_signs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

TEST(FlipSigns, TakesTheTopBitOfEachCoordinate) {
  constexpr LaneKeys kKeys{11, 22};
  for (size_t n : {0u, 1u, 3u, 16u, 17u, 100u, 1000u}) {
    std::vector<float> in(n), expected(n);
    for (size_t i = 0; i < n; ++i) {
      in[i] = i % 5 == 0   ? -0.0f
              : i % 7 == 0 ? std::numeric_limits<float>::denorm_min()
                           : static_cast<float>(i) - 50;
      const bool flip = RandomBits(kKeys, 999 + static_cast<uint32_t>(i)) >> 31 != 0;
      expected[i] = flip ? -(in[i] * 0.5f) : in[i] * 0.5f;
    }
    ForEachTarget([&] {
      std::vector<float> out(n), in_place = in;
      FlipSigns(in.data(), n, {kKeys, 999}, 0.5f, out.data());
      FlipSigns(in_place.data(), n, {kKeys, 999}, 0.5f, in_place.data());
      EXPECT_EQ(in_place, out);
      for (size_t i = 0; i < n; ++i) {
        EXPECT_EQ(out[i], expected[i]) << i;
        EXPECT_EQ(std::signbit(out[i]), std::signbit(expected[i])) << i;
      }
    });
  }
}

}  // namespace
}  // namespace elastiquant
