#include "elastiquant/coding/rans_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "elastiquant/coding/coding_test_util.h"
#include "elastiquant/kernels/count_codes.h"

namespace elastiquant {
namespace {

RansFrequencies Normalize(const std::vector<uint32_t>& front) {
  uint32_t counts[256] = {};
  std::copy(front.begin(), front.end(), counts);
  return NormalizeCounts(counts);
}

uint32_t Sum(const RansFrequencies& f) { return std::accumulate(f.of, f.of + 256, 0u); }

TEST(RansTableTest, KeepsExactShares) {
  const RansFrequencies f = Normalize({2, 1, 0, 1});
  EXPECT_EQ(f.of[0], 2048);
  EXPECT_EQ(f.of[1], 1024);
  EXPECT_EQ(f.of[2], 0);
  EXPECT_EQ(f.of[3], 1024);
}

TEST(RansTableTest, EveryCodeThatOccursGetsAShare) {
  const std::vector<std::vector<uint32_t>> cases = {
      {1, 1},
      {4000000000u, 1},
      {1, 4000000000u},
      {3, 3, 3},
      std::vector<uint32_t>(256, 1),
      std::vector<uint32_t>(255, 17),
      {1, 0, 1000000, 5},
  };
  for (const auto& counts : cases) {
    const RansFrequencies f = Normalize(counts);
    EXPECT_EQ(Sum(f), kRansScale);
    for (size_t c = 0; c < 256; ++c) {
      EXPECT_EQ(f.of[c] != 0, c < counts.size() && counts[c] != 0);
      EXPECT_LT(f.of[c], kRansScale);
    }
  }
  // Many rare codes take their shares from the frequent ones, even far more than rounding does.
  std::vector<uint32_t> rare(256, 1);
  rare[0] = rare[1] = 1u << 30;
  const RansFrequencies f = Normalize(rare);
  EXPECT_EQ(Sum(f), kRansScale);
  EXPECT_EQ(f.of[0], f.of[1]);
  EXPECT_EQ(f.of[2], 1);
}

TEST(RansTableTest, WhatIsWrittenIsRead) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (CodePattern pattern : kAllPatterns) {
      uint32_t counts[256];
      const auto codes = MakeCodes(pattern, 5000, bits);
      CountCodes(codes.data(), codes.size(), bits, counts);
      counts[0] += 1;  // at least two codes
      counts[1] += 1;
      const RansFrequencies written = NormalizeCounts(counts);
      std::vector<uint8_t> out(MaxRansTableBytes(bits) + 8);
      BitWriter writer(out);
      WriteRansTable(written, bits, writer);
      size_t size = 0;
      ASSERT_TRUE(writer.Finish(&size));
      RansFrequencies read;
      BitReader reader({out.data(), size});
      ASSERT_TRUE(ReadRansTable(reader, bits, &read));
      EXPECT_TRUE(reader.AtFinish());
      EXPECT_EQ(std::memcmp(&read, &written, sizeof(read)), 0);
    }
  }
}

TEST(RansTableTest, RefusesAWrongSum) {
  for (const int change : {-1, 1}) {
    RansFrequencies f = Normalize({2, 1, 0, 1});
    f.of[1] = static_cast<uint16_t>(f.of[1] + change);
    std::vector<uint8_t> out(MaxRansTableBytes(2) + 8);
    BitWriter writer(out);
    WriteRansTable(f, 2, writer);
    size_t size = 0;
    ASSERT_TRUE(writer.Finish(&size));
    RansFrequencies read;
    BitReader reader({out.data(), size});
    EXPECT_FALSE(ReadRansTable(reader, 2, &read));
  }
  RansFrequencies read;
  BitReader zeros(std::span<const uint8_t>{});
  EXPECT_FALSE(ReadRansTable(zeros, 4, &read));
}

}  // namespace
}  // namespace elastiquant
