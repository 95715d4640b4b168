#include "elastiquant/coding/float_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/convert.h"

namespace elastiquant {
namespace {

int TopOf(const std::vector<float>& values) {
  int top = 0;
  for (const float v : values) {
    top = std::max(top, static_cast<int>(std::bit_cast<uint32_t>(v) >> 23 & 0xFF));
  }
  return top;
}

struct CodedFloats {
  std::vector<uint8_t> table, stream;
};
CodedFloats Encode(const std::vector<float>& values) {
  FloatCounts counts(TopOf(values));
  counts.Add(values);
  const FloatCode code(counts);
  EXPECT_LE(code.Bits(counts), values.size() * FloatCode::kMaxBits);
  CodedFloats coded;
  coded.table.resize(FloatCode::kMaxTableBytes);
  coded.table.resize(code.Write(coded.table.data()));
  coded.stream.resize(code.Bits(counts) / 8 + 9);
  BitWriter writer(coded.stream);
  code.Encode(values, writer);
  size_t size = 0;
  EXPECT_TRUE(writer.Finish(&size));
  EXPECT_EQ(size, (code.Bits(counts) + 7) / 8);
  coded.stream.resize(size);
  return coded;
}

void ExpectRoundTrip(const std::vector<float>& values) {
  const CodedFloats coded = Encode(values);
  size_t table = 0;
  const auto code = FloatCode::Read(coded.table, &table);
  ASSERT_TRUE(code.ok()) << code.status().ToString();
  EXPECT_EQ(table, coded.table.size());
  std::vector<float> read(values.size());
  BitReader reader(coded.stream);
  ASSERT_TRUE(FloatDecoder(*code).Decode(reader, read));
  EXPECT_EQ(std::memcmp(read.data(), values.data(), values.size() * sizeof(float)), 0);
  EXPECT_TRUE(reader.AtFinish());
}

float Normal(uint32_t i, uint32_t seed = 1) {
  float sum = -6;
  for (uint32_t k = 0; k < 12; ++k) sum += UniformFloat(RandomBits({seed, k}, i));
  return sum;
}
float ToHalf(float v) {
  uint8_t half[2];
  PackFp16(&v, 1, half);
  float back = 0;
  EXPECT_TRUE(UnpackFp16(half, 1, &back));
  return back;
}

TEST(FloatCode, AllFiniteFloatsComeBack) {
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  const std::vector<std::vector<float>> cases{
      {0},
      {-0.0f},
      {1},
      {-1.5f},
      {kMax, -kMax, kLeast, -kLeast, 0, -0.0f, 1, 3, 0.1f},
      {1.17549435e-38f, 1.17549421e-38f, -1e-44f},
  };
  for (const auto& values : cases) ExpectRoundTrip(values);
  std::vector<float> any;
  for (uint32_t i = 0; i < 5000; ++i) {
    const auto v = std::bit_cast<float>(RandomBits({3, 4}, i));
    if (std::isfinite(v)) any.push_back(v);
  }
  ExpectRoundTrip(any);
}

TEST(FloatCode, HalvesAndTheirSumsAreShort) {
  std::vector<float> halves, sums;
  for (uint32_t i = 0; i < 20000; ++i) {
    const float scale = std::ldexp(1.0f, -9);
    halves.push_back(ToHalf(Normal(i)) * scale);
    sums.push_back(ToHalf(Normal(i, 2)) * scale + ToHalf(Normal(i, 3)) * scale);
  }
  ExpectRoundTrip(halves);
  ExpectRoundTrip(sums);
  // A sign, ten bits, and the entropy of a normal number's exponent, about 2.2 bits. A sum has
  // the grid of the smaller one.
  EXPECT_LT(static_cast<double>(Encode(halves).stream.size()) * 8 / 20000, 13.6);
  EXPECT_LT(static_cast<double>(Encode(sums).stream.size()) * 8 / 20000, 16.3);
}

TEST(FloatCode, RefusesExponentsOfNoNumber) {
  size_t bytes = 0;
  const uint8_t top[] = {255, 0, 1, 0, 1};
  EXPECT_EQ(FloatCode::Read(top, &bytes).status().code(), StatusCode::kCorruptData);
  for (size_t size = 0; size < 5; ++size) {
    EXPECT_FALSE(FloatCode::Read(std::span(top).first(size), &bytes).ok()) << size;
  }
  // Five below a largest exponent of four; and 255 behind an escape.
  const uint8_t below[] = {4, 5, 1, 0, 1}, escaped[] = {200, 62, 1, 0, 1};
  for (const auto& table : {std::span(below), std::span(escaped)}) {
    const auto code = FloatCode::Read(table, &bytes);
    ASSERT_TRUE(code.ok()) << code.status().ToString();
    EXPECT_EQ(bytes, 5u);
    const uint8_t stream[] = {0xFF, 0x80};
    BitReader reader(stream);
    std::vector<float> values(1);
    EXPECT_FALSE(FloatDecoder(*code).Decode(reader, values));
  }
}

}  // namespace
}  // namespace elastiquant
