#include "elastiquant/kernels/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/kernel_testing.h"

namespace elastiquant {
namespace {

std::vector<uint8_t> Codes(size_t n, int bits) {
  std::vector<uint8_t> codes(n);
  for (uint32_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(RandomBits({5, 6}, i) >> (32 - bits));
  }
  return codes;
}

std::vector<float> Levels(int bits) {
  std::vector<float> levels(UniformSteps(bits) + 1);
  for (size_t j = 0; j < levels.size(); ++j) {
    levels[j] = static_cast<float>(j) / static_cast<float>(UniformSteps(bits));
  }
  return levels;
}

int SignedIndex(uint8_t code, int bits) {
  const int index = code & UniformSteps(bits);
  return code >> (bits - 1) ? -index : index;
}

TEST(Dequantize, ValuesAreRoundedTheSameOnEveryTarget) {
  const float norm = 1.7f, weight = -0.3f;
  ForEachTarget([&] {
    for (int bits = 2; bits <= 8; ++bits) {
      const std::vector<float> levels = Levels(bits);
      ValueTable table;
      FillValueTable(levels, bits, &table);
      for (size_t n : {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 200, 513}) {
        const std::vector<uint8_t> codes = Codes(n, bits);
        std::vector<float> out(n + 1, 7.0f), sum(n + 1, 7.0f);
        DequantizeLevels(codes.data(), n, table, norm, {}, out.data());
        DequantizeLevels(codes.data(), n, table, norm, {true, weight}, sum.data());
        for (size_t i = 0; i < n; ++i) {
          const int k = SignedIndex(codes[i], bits);
          const float size = norm * levels[static_cast<size_t>(std::abs(k))];
          const float value = codes[i] >> (bits - 1) ? -size : size;
          ASSERT_EQ(out[i], value) << bits << " bits, " << i << " of " << n;
          const float product = weight * value;
          ASSERT_EQ(sum[i], 7.0f + product);
        }
        EXPECT_EQ(out[n], 7.0f);
        EXPECT_EQ(sum[n], 7.0f);
      }
    }
  });
}

TEST(Dequantize, DitherIsTakenOffAgain) {
  const float step = 0.4f;
  ForEachTarget([&] {
    for (int bits = 2; bits <= 8; ++bits) {
      const size_t n = 213;
      const std::vector<uint8_t> codes = Codes(n, bits);
      std::vector<float> out(n);
      DequantizeDithered(codes.data(), n, kTestRun, step, bits, {}, out.data());
      for (uint32_t i = 0; i < n; ++i) {
        const double u = RandomBits(kTestRun.keys, kTestRun.first + i) * 0x1p-32 - 0.5;
        ASSERT_NEAR(out[i], 0.4 * (SignedIndex(codes[i], bits) - u), 1e-5 * (1 << bits));
      }
    }
  });
}

// |x - Q(x)| <= D/2, whatever the number.
TEST(Dequantize, DitheredErrorIsAtMostHalfAStep) {
  ForEachTarget([&] {
    for (int bits = 2; bits <= 8; ++bits) {
      const size_t n = 1003;
      std::vector<float> v(n), out(n);
      for (uint32_t i = 0; i < n; ++i) v[i] = 2 * UniformFloat(RandomBits({8, 9}, i)) - 1;
      v[5] = 1;
      v[6] = -1;
      std::vector<uint8_t> codes(n);
      const float step = 1.0f / static_cast<float>(UniformSteps(bits));
      QuantizeDithered(v.data(), n, kTestRun, MakeScaler(1, UniformTop(bits)), bits,
                       codes.data());
      DequantizeDithered(codes.data(), n, kTestRun, step, bits, {}, out.data());
      for (size_t i = 0; i < n; ++i) {
        ASSERT_LE(std::fabs(v[i] - out[i]), step * 0.500001f + 1e-6f) << bits << " at " << i;
      }
    }
  });
}

TEST(MaxIndex, IsFoundAtEveryPlace) {
  ForEachTarget([] {
    for (size_t n = 0; n < 200; ++n) {
      std::vector<uint8_t> codes(n, 0x80);  // the sign does not count
      EXPECT_EQ(MaxIndex(codes.data(), n, 8), 0);
      for (size_t i = 0; i < n; i += 7) {
        codes[i] = static_cast<uint8_t>(0x80 | (1 + i % 100));
        EXPECT_EQ(MaxIndex(codes.data(), n, 8), 1 + i % 100);
        codes[i] = 0;
      }
    }
  });
}

}  // namespace
}  // namespace elastiquant
