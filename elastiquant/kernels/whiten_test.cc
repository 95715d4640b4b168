#include "elastiquant/kernels/whiten.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

// Gradients and second moments of all sizes, nasty ones among them.
struct Inputs {
  explicit Inputs(size_t n) : g(n), v(n) {
    using Limits = std::numeric_limits<float>;
    const float nasty[] = {
        0.0f, -0.0f, Limits::denorm_min(), Limits::min(), 1.0f, Limits::max(), 3e-20f, -2.5f};
    for (size_t i = 0; i < n; ++i) {
      g[i] = i % 3 == 0 ? nasty[i / 3 % 8] : std::ldexp(1.5f, static_cast<int>(i % 61) - 40);
      v[i] = i % 5 == 0 ? nasty[i / 5 % 8] : std::ldexp(1.3f, static_cast<int>(i % 53) - 30);
    }
  }
  std::vector<float> g, v;
};

TEST(Whiten, DividesByTheRootOnEveryTarget) {
  constexpr float kFloor = 1e-12f;
  for (const size_t n : {0u, 1u, 3u, 15u, 16u, 17u, 100u, 1000u}) {
    const Inputs in(n);
    std::vector<float> whitened(n), back(n);
    for (size_t i = 0; i < n; ++i) {
      const float unit = std::sqrt(std::max(in.v[i], 0.0f) + kFloor);
      whitened[i] = in.g[i] / unit;
      back[i] = in.g[i] * unit;
    }
    ForEachTarget([&] {
      std::vector<float> out = in.g;
      Whiten(in.v.data(), n, kFloor, out.data());
      EXPECT_EQ(Bits(out), Bits(whitened)) << n;
      out = in.g;
      Unwhiten(in.v.data(), n, kFloor, out.data());
      EXPECT_EQ(Bits(out), Bits(back)) << n;
    });
  }
}

TEST(Whiten, KeepsWhatIsNotFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ForEachTarget([&] {
    std::vector<float> g(40, 1.0f);
    const std::vector<float> v(40, 4.0f);
    g[3] = g[39] = kNan;
    g[20] = kInfinity;
    Whiten(v.data(), v.size(), 1e-6f, g.data());
    EXPECT_TRUE(std::isnan(g[3]));
    EXPECT_TRUE(std::isnan(g[39]));
    EXPECT_EQ(g[20], kInfinity);
    EXPECT_EQ(g[21], 1.0f / std::sqrt(4.0f + 1e-6f));
  });
}

}  // namespace
}  // namespace elastiquant
