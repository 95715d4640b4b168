#include "elastiquant/kernels/whiten.h"

#include <gtest/gtest.h>

#include <algorithm>
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

constexpr float kFloor = 1e-12f;

TEST(Whiten, DividesByAboutTheRoot) {
  const Inputs in(1000);
  std::vector<float> whitened(1000, 1.0f), units = whitened;
  Whiten(in.v.data(), in.v.size(), kFloor, whitened.data(), whitened.data());
  Unwhiten(in.v.data(), in.v.size(), kFloor, units.data(), units.data());
  for (size_t i = 0; i < units.size(); ++i) {
    const double root = std::sqrt(static_cast<double>(std::max(in.v[i], 0.0f) + kFloor));
    EXPECT_NEAR(static_cast<double>(units[i]) / root, 1, 0.035) << in.v[i];
    EXPECT_NEAR(static_cast<double>(whitened[i]) * static_cast<double>(units[i]), 1, 1e-7);
  }
}

TEST(Whiten, IsUndone) {
  const Inputs in(1000);
  std::vector<float> values = in.g;
  Whiten(in.v.data(), in.v.size(), kFloor, values.data(), values.data());
  Unwhiten(in.v.data(), in.v.size(), kFloor, values.data(), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    // Gradients at the ends of what floats can hold leave it in between.
    const float size = std::abs(in.g[i]);
    if (size > 1e18f || size < 1e-18f) continue;
    EXPECT_NEAR(values[i] / in.g[i], 1, 2e-7) << in.g[i] << " by " << in.v[i];
  }
}

TEST(Whiten, DoesTheSameOnEveryTarget) {
  for (const size_t n : {0u, 1u, 3u, 15u, 16u, 17u, 100u, 1000u}) {
    const Inputs in(n);
    uint32_t sum = 0;
    for (const float v : in.v) sum += std::bit_cast<uint32_t>(v);
    std::vector<uint32_t> whitened, back;
    ForEachTarget([&] {
      std::vector<float> out = in.g;
      EXPECT_EQ(Whiten(in.v.data(), n, kFloor, out.data(), out.data()), sum) << n;
      if (whitened.empty()) whitened = Bits(out);
      EXPECT_EQ(Bits(out), whitened) << n;
      out = in.g;
      Unwhiten(in.v.data(), n, kFloor, out.data(), out.data());
      if (back.empty()) back = Bits(out);
      EXPECT_EQ(Bits(out), back) << n;
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
    (void)Whiten(v.data(), v.size(), 1e-6f, g.data(), g.data());
    EXPECT_TRUE(std::isnan(g[3]));
    EXPECT_TRUE(std::isnan(g[39]));
    EXPECT_EQ(g[20], kInfinity);
    EXPECT_NEAR(g[21], 0.5f, 0.02f);
  });
}

}  // namespace
}  // namespace elastiquant
