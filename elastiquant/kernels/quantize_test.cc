#include "elastiquant/kernels/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "elastiquant/kernels/dequantize.h"
#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/quantize_scalar.h"

namespace elastiquant {
namespace {

constexpr RandomRun kRandom{{0x12345678, 0x9ABCDEF0}, 0xFFFFFF00};  // the counter wraps round

std::vector<size_t> Lengths() {
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 140; ++n) lengths.push_back(n);
  for (size_t n : {511, 512, 513, 1024}) lengths.push_back(n);
  return lengths;
}

// Sizes from 0 to norm, of all magnitudes, both ends and both zeros among them.
std::vector<float> Values(size_t n, float norm) {
  std::vector<float> v(n);
  const LaneKeys keys = MakeLaneKeys(DeriveKey(2, n, 0, 0));
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t random = RandomBits(keys, i);
    const float size = norm * UniformFloat(random);
    const float kinds[] = {size, size * 0x1p-3f, size * 0x1p-6f, size * 0x1p-20f,
                           norm, 0.0f,           norm / 4,       size};
    v[i] = (random & 16) ? -kinds[random & 7] : kinds[random & 7];
  }
  return v;
}

constexpr float kNorms[] = {1.0f,
                            13.0f,
                            3e-5f,
                            1e-38f,
                            0x1p-149f,
                            0x1p-140f,
                            0x1p-65f,
                            0x1p64f,
                            0x1p65f,
                            1e38f,
                            std::numeric_limits<float>::max()};

std::vector<float> Exponential(int bits, float p) {
  std::vector<float> levels(size_t{1} << (bits - 1));
  float level = 1;
  for (size_t j = levels.size() - 1; j > 0; --j, level *= p) levels[j] = level;
  return levels;
}

// Level sets of every kind: few and many, near and far apart.
std::vector<std::vector<float>> LevelSets(int bits) {
  std::vector<std::vector<float>> sets{{0, 1}};
  if (bits > 2) sets.push_back({0, 0.3f, 1});
  if (bits > 3) {
    sets.push_back({0, 0.5f, 0.500001f, 0.500002f, 0.500003f, 0.7f, 0.8f, 1});
    sets.push_back({0, 0x1p-126f, 0x1p-100f, 0.1f, 0.2f, 1});
  }
  for (float p : {0.3f, 0.5f, 0.6f, 0.69f, 0.9f, 0.95f}) {
    if (std::pow(p, (1 << (bits - 1)) - 2) >= 0x1p-126f) sets.push_back(Exponential(bits, p));
  }
  return sets;
}

// Levels of any signs made of a set without zero.
std::vector<std::vector<float>> LevelSetsWithoutZero(int bits) {
  std::vector<std::vector<float>> sets{{1}, {0.2f, 1}, {0x1p-126f, 1}, {0.999999f, 1}};
  if (bits > 2) sets.push_back({0.06f, 0.27f, 0.53f, 1});
  if (bits > 3) {
    sets.push_back({0.03f, 0.1f, 0.2f, 0.3f, 0.42f, 0.56f, 0.76f, 1});
    sets.push_back({0.5f, 0.500001f, 0.500002f, 0.500003f, 0.7f, 0.8f, 0.9f, 1});
    sets.push_back({0x1p-20f, 0x1p-13f, 0x1p-9f, 0x1p-5f, 0x1p-3f, 0.25f, 0.5f, 1});
    sets.push_back({0.1f, 0.2f, 0.3f, 0.6f, 1});
  }
  return sets;
}

using Quantizer = std::function<void(const float* v, size_t n, const Scaler&, uint8_t* codes)>;
using Reference = std::function<uint8_t(float y, float v, uint32_t random)>;

void ExpectAsReference(float top, const Quantizer& quantize, const Reference& reference) {
  for (float norm : kNorms) {
    const Scaler scaler = MakeScaler(norm, top);
    for (size_t n : Lengths()) {
      const std::vector<float> v = Values(n, norm);
      std::vector<uint8_t> codes(n + 1, 0xA5);
      quantize(v.data(), n, scaler, codes.data());
      EXPECT_EQ(codes[n], 0xA5);
      for (size_t i = 0; i < n; ++i) {
        const uint32_t random =
            RandomBits(kRandom.keys, kRandom.first + static_cast<uint32_t>(i));
        ASSERT_EQ(codes[i], reference(ScaledSize(scaler, v[i]), v[i], random))
            << "norm " << norm << ", coordinate " << i << " of " << n << ": " << v[i];
      }
    }
  }
}

TEST(Quantize, EveryTargetIsAsTheScalarDefinition) {
  ForEachTarget([] {
    for (int bits = 2; bits <= 8; ++bits) {
      SCOPED_TRACE(bits);
      ExpectAsReference(
          UniformTop(bits),
          [&](auto v, auto n, auto& scaler, auto codes) {
            QuantizeUniform(v, n, kRandom, scaler, bits, codes);
          },
          [&](float y, float v, uint32_t random) {
            return scalar::SignedCode(v, scalar::RoundUniform(y, random, bits), bits);
          });
      ExpectAsReference(
          UniformTop(bits),
          [&](auto v, auto n, auto& scaler, auto codes) {
            QuantizeDithered(v, n, kRandom, scaler, bits, codes);
          },
          [&](float y, float v, uint32_t random) {
            const int k = scalar::RoundDithered(y, std::signbit(v), random, bits);
            return static_cast<uint8_t>(std::abs(k) | (k < 0) << (bits - 1));
          });
      if (bits <= kMaxHalvingBits) {
        ExpectAsReference(
            kRelativeTop,
            [&](auto v, auto n, auto& scaler, auto codes) {
              QuantizeHalving(v, n, kRandom, scaler, bits, codes);
            },
            [&](float y, float v, uint32_t random) {
              const auto halving = scalar::MakeHalving(bits);
              return scalar::SignedCode(v, scalar::RoundHalving(halving, y, random), bits);
            });
      }
    }
  });
}

TEST(Quantize, EveryTargetIsAsTheScalarDefinitionForAnyLevels) {
  ForEachTarget([] {
    for (int bits = 2; bits <= 8; bits += 2) {
      std::vector<std::vector<float>> sets = LevelSets(bits);
      for (const auto& set : LevelSetsWithoutZero(std::min(bits, 4))) sets.push_back(set);
      for (const std::vector<float>& levels : sets) {
        SCOPED_TRACE(::testing::PrintToString(levels));
        LevelTable table;
        FillLevelTable(levels, &table);
        ExpectAsReference(
            kRelativeTop,
            [&](auto v, auto n, auto& scaler, auto codes) {
              QuantizeLevels(v, n, kRandom, scaler, table, bits, codes);
            },
            [&](float y, float v, uint32_t random) {
              return scalar::LevelCode(table, y, v, random, bits);
            });
      }
    }
  });
}

// Against rounding between signed levels, -1 ... -l_0, l_0 ... 1, in real numbers. A negative
// value is rounded as its mirror image.
TEST(Quantize, WithoutZeroTheScalarDefinitionRoundsBetweenSignedLevels) {
  for (int bits = 2; bits <= 4; ++bits) {
    for (const std::vector<float>& levels : LevelSetsWithoutZero(bits)) {
      if (levels.size() > size_t{1} << (bits - 1)) continue;
      LevelTable table;
      FillLevelTable(levels, &table);
      for (uint32_t i = 0; i < 3000; ++i) {
        const uint32_t random = RandomBits({1, 2}, i);
        const float r = i % 4 == 3 ? levels[0] * UniformFloat(RandomBits({5, 6}, i))
                                   : UniformFloat(RandomBits({3, 4}, i));
        size_t above = 0;
        while (above + 1 < levels.size() && r >= levels[above]) ++above;
        const double low = above == 0 ? -levels[0] : levels[above - 1];
        const double u = (random >> 2) * 0x1p-30;
        const double place = (r - low) / (static_cast<double>(levels[above]) - low);
        if (std::abs(u - place) < 1e-5) continue;  // too near to say
        const double rounded = u < place ? levels[above] : low;
        for (const float sign : {1.0f, -1.0f}) {
          const uint8_t code = scalar::LevelCode(table, r, sign * r, random, bits);
          const float level = levels[code & ((1 << (bits - 1)) - 1)];
          const double value = code >> (bits - 1) ? -level : level;
          EXPECT_EQ(value, sign * rounded) << ::testing::PrintToString(levels) << " r " << r;
        }
      }
      // The largest stays, but for one random number in 2^24 at most.
      EXPECT_EQ(scalar::LevelCode(table, 1, 1, 0, bits), levels.size() - 1);
      EXPECT_EQ(scalar::LevelCode(table, 1, 1, ~0u << 8, bits), levels.size() - 1);
    }
  }
}

// The definition itself, held against stochastic rounding in real numbers: up iff u < place.
void ExpectRoundsTo(const std::vector<float>& levels, double r, uint32_t random, uint32_t index,
                    double digits) {
  size_t j = 0;
  while (j + 2 < levels.size() && r >= static_cast<double>(levels[j + 1])) ++j;
  const double low = levels[j], high = levels[j + 1];
  const double place = (r - low) / (high - low);
  const double u = random * 0x1p-32;
  if (std::abs(u - place) < digits) return;  // too near to say
  EXPECT_EQ(index, u < place ? j + 1 : j) << "r " << r << " u " << u;
}

TEST(Quantize, TheScalarDefinitionRoundsStochastically) {
  for (uint32_t i = 0; i < 200000; ++i) {
    const uint32_t random = RandomBits({1, 2}, i);
    const float r = UniformFloat(RandomBits({3, 4}, i));
    const int bits = 2 + static_cast<int>(i % 7);
    std::vector<float> uniform(UniformSteps(bits) + 1);
    for (size_t j = 0; j < uniform.size(); ++j) {
      uniform[j] = static_cast<float>(j) / static_cast<float>(UniformSteps(bits));
    }
    ExpectRoundsTo(uniform, r, random, scalar::RoundUniform(r * UniformTop(bits), random, bits),
                   1e-4);
    if (bits <= kMaxHalvingBits) {
      ExpectRoundsTo(Exponential(bits, 0.5f), r, random,
                     scalar::RoundHalving(scalar::MakeHalving(bits), r, random), 1e-6);
    }
    LevelTable table;
    const std::vector<float> levels = Exponential(4, 0.69f);
    FillLevelTable(levels, &table);
    ExpectRoundsTo(levels, r, random, scalar::RoundLevels(table, r, random), 1e-6);
  }
}

TEST(Quantize, LevelsThemselvesAreKept) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (const std::vector<float>& levels : LevelSets(bits)) {
      LevelTable table;
      FillLevelTable(levels, &table);
      for (uint32_t j = 0; j < levels.size(); ++j) {
        for (uint32_t random : {0u, 1u, 0x7FFFFFFFu, ~0u}) {
          EXPECT_EQ(scalar::RoundLevels(table, levels[j], random), j);
        }
      }
    }
    for (uint32_t random : {0u, ~0u}) {
      EXPECT_EQ(scalar::RoundUniform(UniformTop(bits), random, bits),
                static_cast<uint32_t>(UniformSteps(bits)));
      EXPECT_EQ(scalar::RoundDithered(UniformTop(bits), true, random, bits),
                -UniformSteps(bits));
    }
  }
}

TEST(Scaler, RelativeSizesAreExactEnoughForAnyNorm) {
  for (float norm : kNorms) {
    const Scaler scaler = MakeScaler(norm, kRelativeTop);
    EXPECT_EQ(ScaledSize(scaler, norm), 1.0f) << norm;
    EXPECT_EQ(ScaledSize(scaler, 0), 0.0f);
    if (norm < 0x1p-147f) continue;  // a half is not a float there
    EXPECT_NEAR(ScaledSize(scaler, -norm / 2), 0.5f, 1e-6f) << norm;
  }
}

}  // namespace
}  // namespace elastiquant
