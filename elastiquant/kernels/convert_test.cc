#include "elastiquant/kernels/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "elastiquant/kernels/kernel_testing.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant {
namespace {

class Convert : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(UseSimdTarget("auto").ok()); }
};

template <typename Pack>
std::vector<uint16_t> Packed(const std::vector<float>& values, Pack pack) {
  std::vector<uint16_t> halves(values.size());
  EXPECT_EQ(pack(values.data(), values.size(), reinterpret_cast<uint8_t*>(halves.data())),
            values.size());
  return halves;
}

// A binary16 number by its definition (IEEE 754-2008, 3.4), for any finite pattern.
float HalfByDefinition(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>(half & 0x8000 ? -magnitude : magnitude);
}
float Bf16ByDefinition(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

struct Format {
  const char* name;
  uint16_t infinity;
  float (*by_definition)(uint16_t);
  size_t (*pack)(const float*, size_t, uint8_t*);
  bool (*unpack)(const uint8_t*, size_t, float*);
};
const Format kFormats[] = {{"fp16", 0x7C00, HalfByDefinition, PackFp16, UnpackFp16},
                           {"bf16", 0x7F80, Bf16ByDefinition, PackBf16, UnpackBf16}};

TEST_P(Convert, EveryPatternUnpacksByDefinitionAndPacksBack) {
  for (const Format& format : kFormats) {
    std::vector<uint16_t> patterns;
    for (uint32_t sign : {0u, 0x8000u}) {
      for (uint32_t h = 0; h < format.infinity; ++h) {
        patterns.push_back(static_cast<uint16_t>(sign | h));
      }
    }
    std::vector<float> values(patterns.size());
    const auto* bytes = reinterpret_cast<const uint8_t*>(patterns.data());
    ASSERT_TRUE(format.unpack(bytes, values.size(), values.data()));
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = format.by_definition(patterns[i]);
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected))
          << format.name << " " << patterns[i];
    }
    EXPECT_EQ(Packed(values, format.pack), patterns) << format.name;
  }
}

TEST_P(Convert, PacksToNearestTiesToEven) {
  for (const Format& format : kFormats) {
    std::vector<float> values;
    std::vector<uint16_t> expected;
    for (uint16_t h = 0; h + 1 < format.infinity; ++h) {
      const auto up = static_cast<uint16_t>(h + 1);
      const double sum =
          static_cast<double>(format.by_definition(h)) + format.by_definition(up);
      const auto middle = static_cast<float>(sum / 2);
      values.insert(values.end(), {middle, -middle, std::nextafter(middle, 0.0f),
                                   std::nextafter(middle, kInfiniteFloat)});
      const uint16_t even = h % 2 == 0 ? h : up;
      expected.insert(expected.end(), {even, static_cast<uint16_t>(even | 0x8000), h, up});
    }
    EXPECT_EQ(Packed(values, format.pack), expected) << format.name;
  }
}

TEST_P(Convert, Saturates) {
  const float max = std::numeric_limits<float>::max();
  EXPECT_EQ(Packed({65504.0f, 65520.0f, 1e6f, max, -65520.0f, -max}, PackFp16),
            (std::vector<uint16_t>{0x7BFF, 0x7BFF, 0x7BFF, 0x7BFF, 0xFBFF, 0xFBFF}));
  EXPECT_EQ(Packed({max, -max}, PackBf16), (std::vector<uint16_t>{0x7F7F, 0xFF7F}));
}

TEST_P(Convert, StochasticBf16RoundsByTheCoordinatesRandomBits) {
  const LaneKeys keys = MakeLaneKeys(DeriveKey(1, 2, 3, 4));
  std::vector<float> values;
  std::vector<uint16_t> expected;
  constexpr uint32_t kFirst = 1000;
  for (uint32_t i = 0; i < 1111; ++i) {
    const auto magnitude = static_cast<uint32_t>(Mix64(i) % 0x7F7F0000u);
    const uint32_t sign = i % 3 == 0 ? 0x80000000u : 0;
    values.push_back(std::bit_cast<float>(magnitude | sign));
    const bool up = (RandomBits(keys, kFirst + i) >> 16) + (magnitude & 0xFFFF) > 0xFFFF;
    expected.push_back(static_cast<uint16_t>((magnitude >> 16) + (up ? 1 : 0) + (sign >> 16)));
  }
  const auto pack = [&](const float* in, size_t n, uint8_t* out) {
    return PackBf16Stochastic(in, n, keys, kFirst, out);
  };
  EXPECT_EQ(Packed(values, pack), expected);

  std::vector<uint8_t> out(2 * values.size());
  values[700] = std::bit_cast<float>(0x7F7F0001u);  // its upper neighbour is infinity
  EXPECT_EQ(pack(values.data(), values.size(), out.data()), 700u);
}

TEST_P(Convert, FindsTheFirstNonFinite) {
  for (float poison : {kInfiniteFloat, -kInfiniteFloat, std::nanf("")}) {
    for (size_t at : {0u, 1u, 15u, 16u, 98u, 99u}) {
      std::vector<float> values(100, 1.0f);
      values[at] = values[99] = poison;
      std::vector<uint8_t> out(400);
      EXPECT_EQ(PackFp32(values.data(), 100, out.data()), at);
      EXPECT_EQ(PackFp16(values.data(), 100, out.data()), at);
      EXPECT_EQ(PackBf16(values.data(), 100, out.data()), at);
      EXPECT_EQ(PackBf16Stochastic(values.data(), 100, {}, 0, out.data()), at);
    }
  }
}

TEST_P(Convert, RefusesNonFinitePatterns) {
  std::vector<float> out(50);
  for (size_t at : {0u, 7u, 49u}) {
    for (uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0x7F800001u, 0xFFFFFFFFu}) {
      std::vector<uint32_t> wide(50);
      wide[at] = bits;
      const auto* bytes = reinterpret_cast<const uint8_t*>(wide.data());
      EXPECT_FALSE(UnpackFp32(bytes, 50, out.data()));
      EXPECT_FALSE(UnpackAddFp32(bytes, 50, 1.0f, out.data()));
    }
    for (const Format& format : kFormats) {
      for (int extra : {0, 1}) {
        std::vector<uint16_t> narrow(50);
        narrow[at] = static_cast<uint16_t>(format.infinity + extra);
        const auto* bytes = reinterpret_cast<const uint8_t*>(narrow.data());
        EXPECT_FALSE(format.unpack(bytes, 50, out.data()));
      }
    }
  }
}

// Frames may begin anywhere, and lengths around every vector width must stay in bounds.
TEST_P(Convert, TakesAnyAlignmentAndLength) {
  for (size_t n = 0; n < 70; ++n) {
    std::vector<float> values(n), back(n), sum(n, 10.0f);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) - 3;
    std::vector<uint8_t> bytes(4 * n + 1);
    EXPECT_EQ(PackFp32(values.data(), n, bytes.data() + 1), n);
    EXPECT_TRUE(UnpackFp32(bytes.data() + 1, n, back.data()));
    EXPECT_EQ(back, values);
    EXPECT_TRUE(UnpackAddFp32(bytes.data() + 1, n, 0.5f, sum.data()));
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], 10.0f + 0.5f * values[i]);

    bytes.assign(2 * n + 1, 0);
    EXPECT_EQ(PackFp16(values.data(), n, bytes.data() + 1), n);
    EXPECT_TRUE(UnpackFp16(bytes.data() + 1, n, back.data()));
    EXPECT_EQ(back, values);
    EXPECT_TRUE(UnpackAddFp16(bytes.data() + 1, n, -0.5f, sum.data()));
    EXPECT_EQ(PackBf16(values.data(), n, bytes.data() + 1), n);
    EXPECT_TRUE(UnpackAddBf16(bytes.data() + 1, n, 2.0f, sum.data()));
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], 10.0f + 2.0f * values[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, Convert, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace elastiquant
