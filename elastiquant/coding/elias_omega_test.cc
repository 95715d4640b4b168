#include "elastiquant/coding/elias_omega.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

namespace elastiquant {
namespace {

std::string BitString(OmegaCode code) {
  std::string text;
  for (int i = code.length - 1; i >= 0; --i) text += (code.bits >> i & 1) != 0 ? '1' : '0';
  return text;
}

TEST(EliasOmegaTest, PublishedCodewords) {
  EXPECT_EQ(BitString(EncodeOmega(1)), "0");
  EXPECT_EQ(BitString(EncodeOmega(2)), "100");
  EXPECT_EQ(BitString(EncodeOmega(3)), "110");
  EXPECT_EQ(BitString(EncodeOmega(4)), "101000");
  EXPECT_EQ(BitString(EncodeOmega(8)), "1110000");
  EXPECT_EQ(BitString(EncodeOmega(16)), "10100100000");
}

TEST(EliasOmegaTest, Lengths) {
  const struct {
    uint64_t first, last;
    int length;
  } ranges[] = {{1, 1, 1},          {2, 3, 3},
                {4, 7, 6},          {8, 15, 7},
                {16, 31, 11},       {32, 63, 12},
                {64, 127, 13},      {128, 255, 14},
                {256, 511, 16},     {1000, 1000, 17},
                {1024, 1024, 18},   {65535, 65535, 23},
                {65536, 65536, 28}, {1000000, 1000000, 31}};
  for (const auto& range : ranges) {
    for (uint64_t k = range.first; k <= range.last; ++k) {
      EXPECT_EQ(EncodeOmega(k).length, range.length) << k;
    }
  }
  EXPECT_EQ(EncodeOmega(kMaxOmegaValue).length, 45);
  for (uint64_t k = 1; k < 100000; ++k) {  // |omega(k)| <= 1 + 2.5 floor(log2 k)
    EXPECT_LE(2 * EncodeOmega(k).length, 2 + 5 * (static_cast<int>(std::bit_width(k)) - 1))
        << k;
  }
}

TEST(EliasOmegaTest, WhatIsWrittenIsRead) {
  std::vector<uint64_t> values;
  for (uint64_t k = 1; k < 1000; ++k) values.push_back(k);
  for (int shift = 10; shift <= 32; ++shift) {
    values.push_back((uint64_t{1} << shift) - 1);
    values.push_back(uint64_t{1} << shift);
  }
  std::vector<uint8_t> out(values.size() * 8);
  BitWriter writer(out);
  for (uint64_t k : values) {
    writer.Add(EncodeOmega(k).bits, EncodeOmega(k).length);
    writer.Flush();
  }
  size_t size = 0;
  ASSERT_TRUE(writer.Finish(&size));
  BitReader reader({out.data(), size});
  for (uint64_t k : values) {
    uint64_t read = 0;
    reader.Reload();
    ASSERT_TRUE(ReadOmega(reader, &read));
    ASSERT_EQ(read, k);
  }
  EXPECT_TRUE(reader.AtFinish());
}

TEST(EliasOmegaTest, TooLargeAValueIsRefused) {
  const std::vector<uint8_t> ones(64, 0xFF);
  BitReader reader(ones);
  uint64_t value = 0;
  EXPECT_FALSE(ReadOmega(reader, &value));

  std::vector<uint8_t> out(16);
  BitWriter writer(out);
  const OmegaCode code = EncodeOmega(kMaxOmegaValue + 1);
  writer.Add(code.bits, code.length);
  size_t size = 0;
  ASSERT_TRUE(writer.Finish(&size));
  BitReader next({out.data(), size});
  EXPECT_FALSE(ReadOmega(next, &value));
}

}  // namespace
}  // namespace elastiquant
