#include "elastiquant/coding/elias.h"

#include <gtest/gtest.h>

#include <vector>

#include "elastiquant/coding/coding_test_util.h"
#include "elastiquant/coding/index_coding.h"

namespace elastiquant {
namespace {

std::vector<uint8_t> Encode(const std::vector<uint8_t>& codes, int bits, size_t run) {
  const size_t runs = (codes.size() + run - 1) / run;
  std::vector<uint8_t> out(MaxIndexBytes(IndexCoding::kElias, codes.size(), bits, runs));
  const auto size = EncodeIndices(IndexCoding::kElias, codes, bits, run, out);
  EXPECT_TRUE(size.ok()) << size.status().ToString();
  out.resize(size.ok() ? *size : 0);
  return out;
}

Status Decode(const std::vector<uint8_t>& in, int bits, size_t run,
              std::vector<uint8_t>& codes) {
  return DecodeIndices(IndexCoding::kElias, in, bits, run, codes);
}

TEST(EliasTest, PublishedExample) {
  // v = (3, -4, 0, 12), levels (0, 1/4, 1/2, 1): indices (1, 1, 0, 3). The count is 3, so
  // omega(4) = 101000; then 000 | 010 | 100 0 110.
  const std::vector<uint8_t> codes = {1, 1 | 4, 0, 3};
  const std::vector<uint8_t> out = Encode(codes, 3, 4);
  EXPECT_EQ(out, (std::vector<uint8_t>{0b10100000, 0b00101000, 0b11000000}));
  std::vector<uint8_t> back(4);
  ASSERT_TRUE(Decode(out, 3, 4, back).ok());
  EXPECT_EQ(back, codes);
}

TEST(EliasTest, RunsFollowBitByBit) {
  EXPECT_EQ(Encode({0, 0, 0, 0, 0}, 4, 2), (std::vector<uint8_t>{0}));  // "0" a run
  EXPECT_EQ(Encode({}, 4, 2), std::vector<uint8_t>{});
  // Distances start anew in each run: "100 0 0 0" twice.
  EXPECT_EQ(Encode({1, 1}, 4, 1), (std::vector<uint8_t>{0b10000010, 0b00000000}));
}

TEST(EliasTest, RoundTripsWithinTheBound) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (CodePattern pattern : kAllPatterns) {
      for (size_t n : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000, 5003}) {
        const std::vector<uint8_t> codes = MakeCodes(pattern, n, bits);
        for (size_t run : {1, 2, 5, 8, 512, 100000}) {
          const std::vector<uint8_t> out = Encode(codes, bits, run);
          std::vector<uint8_t> back(n, 0xEE);
          const Status status = Decode(out, bits, run, back);
          ASSERT_TRUE(status.ok()) << status.ToString() << " n " << n << " run " << run;
          ASSERT_EQ(back, codes);
        }
      }
    }
  }
}

TEST(EliasTest, BoundHoldsForTheLongestCodes) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (size_t n : {1, 2, 3, 4, 7, 8, 100, 513}) {
      for (size_t step : {1, 2, 3, 4, 8, 16}) {
        std::vector<uint8_t> codes(n);
        for (size_t i = step - 1; i < n; i += step) {
          codes[i] = static_cast<uint8_t>((1u << bits) - 1);
        }
        Encode(codes, bits, 512);  // expects success at MaxIndexBytes
        Encode(codes, bits, 1);
      }
    }
  }
}

TEST(EliasTest, EncodeRefusesWhatHasNoCode) {
  std::vector<uint8_t> out(100);
  for (const int bad : {8, 16, 255}) {  // negative zero, too wide
    const std::vector<uint8_t> codes = {1, static_cast<uint8_t>(bad), 2};
    EXPECT_EQ(EncodeIndices(IndexCoding::kElias, codes, 4, 3, out).status().code(),
              StatusCode::kInvalidArgument);
  }
  const std::vector<uint8_t> codes = {1, 2};
  EXPECT_EQ(EncodeIndices(IndexCoding::kElias, codes, 4, 0, out).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeIndices(IndexCoding::kElias, codes, 4, 2, {out.data(), 2}).status().code(),
            StatusCode::kBufferTooSmall);
}

TEST(EliasTest, DecodeChecksCountDistanceLevelAndEnd) {
  std::vector<uint8_t> codes(4);
  const auto error = [&](std::vector<uint8_t> in) { return Decode(in, 3, 4, codes).message(); };
  EXPECT_EQ(error({0b00000000}), "");
  EXPECT_NE(error({0b10110000, 0, 0}).find("more nonzeros"), std::string::npos);   // 5 of 4
  EXPECT_NE(error({0b10010100, 0b10000000}).find("distance"), std::string::npos);  // 5th of 4
  EXPECT_NE(error({0b10000101, 0b00000000}).find("level"), std::string::npos);     // 4 of 3
  EXPECT_NE(error({0b10100000}).find("too early"), std::string::npos);
  EXPECT_NE(error({}).find("too early"), std::string::npos);
  EXPECT_NE(error({0, 0}).find("left"), std::string::npos);
  EXPECT_NE(error({0b00000001}).find("left"), std::string::npos);
  EXPECT_NE(error(std::vector<uint8_t>(50, 0xFF)).find("more nonzeros"), std::string::npos);
}

}  // namespace
}  // namespace elastiquant
