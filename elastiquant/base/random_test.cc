#include "elastiquant/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace elastiquant {
namespace {

// Chi-square of `counts` against the uniform law, as a number of standard deviations.
double ChiSquareZ(const std::vector<double>& counts) {
  double total = 0, chi = 0;
  for (double c : counts) total += c;
  const double expected = total / static_cast<double>(counts.size());
  for (double c : counts) chi += (c - expected) * (c - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi - freedom) / std::sqrt(2 * freedom);
}

TEST(Random, EveryByteIsUniform) {
  for (uint64_t seed : {0u, 1u, 12345u}) {
    const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, 3, 1, 0));
    for (int byte = 0; byte < 4; ++byte) {
      std::vector<double> counts(256, 0.0);
      for (uint32_t i = 0; i < 1u << 18; ++i)
        ++counts[(RandomBits(keys, i) >> (8 * byte)) & 0xFF];
      EXPECT_LT(std::abs(ChiSquareZ(counts)), 5) << "seed " << seed << " byte " << byte;
    }
  }
}

TEST(Random, NeighboursAndWorkersAreIndependent) {
  const LaneKeys a = MakeLaneKeys(DeriveKey(7, 3, 1, 0));
  const LaneKeys b = MakeLaneKeys(DeriveKey(7, 3, 2, 0));
  for (uint32_t lag : {0u, 1u, 2u, 16u, 512u}) {
    std::vector<double> counts(4096, 0.0);
    for (uint32_t i = 0; i < 1u << 18; ++i) {
      const uint32_t x = RandomBits(a, i) >> 26;
      const uint32_t y = RandomBits(lag == 0 ? b : a, i + lag) >> 26;
      ++counts[x * 64 + y];
    }
    EXPECT_LT(std::abs(ChiSquareZ(counts)), 5) << "lag " << lag;
  }
}

TEST(Random, KeysDifferInEveryArgument) {
  std::set<uint64_t> keys;
  for (uint64_t a = 0; a < 4; ++a)
    for (uint64_t b = 0; b < 4; ++b)
      for (uint64_t c = 0; c < 4; ++c)
        for (uint64_t d = 0; d < 4; ++d) keys.insert(DeriveKey(a, b, c, d).value);
  EXPECT_EQ(keys.size(), 256u);
}

TEST(Random, UniformFloatStaysBelowOne) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_LT(UniformFloat(~0u), 1.0f);
}

// Frozen: frames written by one release must decode with the next (shared-seed dither).
TEST(Random, NumbersNeverChange) {
  const StreamKey key = DeriveKey(1, 2, 3, 4);
  EXPECT_EQ(key.value, 15374388949593934587u);
  EXPECT_EQ(RandomBits(MakeLaneKeys(key), 5), 1984938019u);
}

}  // namespace
}  // namespace elastiquant
