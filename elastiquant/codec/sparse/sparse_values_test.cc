#include "elastiquant/codec/sparse/sparse_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/codec/sparse/sparse_format.h"

namespace elastiquant {
namespace {

constexpr float kMaxValue = std::numeric_limits<float>::max();

std::vector<float> CodedAndBack(const std::vector<float>& values, SparseRounding rounding) {
  std::vector<uint32_t> positions(values.size());
  float largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    positions[i] = static_cast<uint32_t>(3 * i + 1);
    largest = std::max(largest, std::abs(values[i]));
  }
  const auto exponent = SparseExponent(largest, rounding.bits, rounding.stochastic);
  EXPECT_TRUE(exponent.ok());
  rounding.exponent = *exponent;
  std::vector<uint8_t> bytes(SparseValueBytes(values.size(), rounding.bits));
  WriteSparseValues(values, positions.data(), rounding, bytes.data());
  std::vector<float> read(values.size());
  EXPECT_TRUE(ReadSparseValues(bytes.data(), rounding.bits, rounding.exponent, read));
  return read;
}

std::vector<float> Ladder(size_t n, float top) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const float size = top * std::pow(0.9f, static_cast<float>(i % 64));
    values[i] = i % 3 == 0 ? -size : size;
  }
  return values;
}

TEST(SparseValues, TheErrorIsWithinTheBoundToNearest) {
  for (int bits : {32, 16, 8, 4}) {
    EXPECT_LT(SparseValueError(1u << 31, bits), 1);
    for (size_t n : {1u, 63u, 64u, 65u, 1000u}) {
      for (float top : {1e-15f, 1.0f, 3e15f}) {
        for (const auto& values : {Ladder(n, top), std::vector<float>(n, top)}) {
          const std::vector<float> read = CodedAndBack(values, {.bits = bits});
          double error = 0, norm = 0;
          for (size_t i = 0; i < n; ++i) {
            error += std::pow(static_cast<double>(read[i]) - values[i], 2);
            norm += std::pow(static_cast<double>(values[i]), 2);
          }
          EXPECT_LE(error, SparseValueError(n, bits) * norm) << bits << " " << n << " " << top;
        }
      }
    }
  }
}

TEST(SparseValues, StochasticRoundingHasTheRightMean) {
  constexpr int kDraws = 4000;
  // Whole octaves down to where binary16 has denormals, and to below them.
  std::vector<float> values = Ladder(64, 1.0f);
  for (int e = 0; e < 45; ++e) values.push_back(std::ldexp(1.3f, -e));
  for (int bits : {16, 8, 4}) {
    std::vector<double> sum(values.size()), squares(values.size());
    for (uint32_t t = 0; t < kDraws; ++t) {
      const std::vector<float> read =
          CodedAndBack(values, {.bits = bits, .stochastic = true, .keys = {t, 7 * t}});
      for (size_t i = 0; i < values.size(); ++i) {
        const double error = static_cast<double>(read[i]) - values[i];
        sum[i] += error;
        squares[i] += error * error;
      }
    }
    for (size_t i = 0; i < values.size(); ++i) {
      // An outcome that is rarer than one in all draws may be missing.
      const double rare = 16 * (bits == 16 ? 0x1p-38 : 0.15) * 1.3;
      EXPECT_LE(std::abs(sum[i]), 5 * std::sqrt(squares[i]) + rare) << bits << " " << i;
      EXPECT_LE(std::abs(sum[i]) / kDraws, std::abs(values[i]) + 0.01);
    }
  }
}

TEST(SparseValues, ExactOnesStayExact) {
  const std::vector<float> halves{1, -0.5f, 0.25f, 1023.5f, 0x1p-20f, 0};
  EXPECT_EQ(CodedAndBack(halves, {.bits = 16}), halves);
  EXPECT_EQ(CodedAndBack(halves, {.bits = 16, .stochastic = true}), halves);
  const std::vector<float> denormals{0x1p-149f, -0x1p-140f, 0x1.8p-148f};
  EXPECT_EQ(CodedAndBack(denormals, {.bits = 16}), denormals);
  const std::vector<float> sevenths{7, -3, 0, 1};
  EXPECT_EQ(CodedAndBack(sevenths, {.bits = 4, .stochastic = true}), sevenths);
  EXPECT_EQ(CodedAndBack({127, -1, 64}, {.bits = 8}), (std::vector<float>{127, -1, 64}));
}

TEST(SparseValues, TheLargestFloatsAreHeldOrRefused) {
  EXPECT_EQ(CodedAndBack({kMaxValue, -kMaxValue}, {.bits = 32}),
            (std::vector<float>{kMaxValue, -kMaxValue}));
  EXPECT_FLOAT_EQ(CodedAndBack({kMaxValue}, {.bits = 16})[0], std::ldexp(65504.0f, 112));
  EXPECT_EQ(SparseExponent(kMaxValue, 16, true).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(SparseExponent(kMaxValue, 8, false).status().code(), StatusCode::kOutOfRange);
  for (int bits : {16, 8, 4}) {
    for (float v : CodedAndBack({0x1.f8p127f, -0x1.f8p127f, 1}, {.bits = bits})) {
      EXPECT_TRUE(std::isfinite(v));
    }
  }
}

TEST(SparseValues, WhatNoEncoderWritesIsRefused) {
  std::vector<float> one(1), three(3);
  const uint8_t infinite_half[] = {0x00, 0x7C};
  EXPECT_FALSE(ReadSparseValues(infinite_half, 16, 0, one));
  const uint8_t nan[] = {0, 0, 0xC0, 0x7F};
  EXPECT_FALSE(ReadSparseValues(nan, 32, 0, one));
  const uint8_t least[] = {0x80, 0x3F, 0x80};  // norm 1, integer -128
  EXPECT_FALSE(ReadSparseValues(least, 8, 0, one));
  const uint8_t negative_norm[] = {0x80, 0xBF, 0x01};
  EXPECT_FALSE(ReadSparseValues(negative_norm, 8, 0, one));
  const uint8_t least_of_four[] = {0x80, 0x3F, 0x81, 0x02};
  EXPECT_FALSE(ReadSparseValues(least_of_four, 4, 0, three));
  const uint8_t filling[] = {0x80, 0x3F, 0x71, 0x12};
  EXPECT_FALSE(ReadSparseValues(filling, 4, 0, three));
  const uint8_t good[] = {0x80, 0x3F, 0x71, 0x09};
  EXPECT_TRUE(ReadSparseValues(good, 4, 0, three));
  EXPECT_EQ(three, (std::vector<float>{1.0f / 7, 1.0f / 7 * 7, -1.0f / 7 * 7}));
}

}  // namespace
}  // namespace elastiquant
