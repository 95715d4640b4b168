#include "elastiquant/coding/fixed.h"

#include <gtest/gtest.h>

#include <vector>

#include "elastiquant/coding/index_coding.h"

namespace elastiquant {
namespace {

TEST(FixedTest, LowBitFirst) {
  const std::vector<uint8_t> codes = {1, 9, 0, 3};  // U1: +1, -1, 0, +3
  std::vector<uint8_t> out(2);
  ASSERT_EQ(EncodeFixed(codes, 4, out).value(), 2u);
  EXPECT_EQ(out, (std::vector<uint8_t>{0x91, 0x30}));
}

TEST(FixedTest, RoundTripsAnyCodeAtAnyLength) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (size_t n = 0; n < 600; ++n) {
      std::vector<uint8_t> codes(n);
      for (size_t i = 0; i < n; ++i) {
        codes[i] = static_cast<uint8_t>((i * 37 + n) & ((1u << bits) - 1));
      }
      const size_t max = MaxIndexBytes(IndexCoding::kFixed, n, bits, 1);
      std::vector<uint8_t> out(max);
      const auto size = EncodeIndices(IndexCoding::kFixed, codes, bits, 512, out);
      ASSERT_TRUE(size.ok()) << size.status().ToString();
      ASSERT_EQ(*size, (n * bits + 7) / 8);
      std::vector<uint8_t> back(n);
      const Status status =
          DecodeIndices(IndexCoding::kFixed, {out.data(), *size}, bits, 512, back);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(back, codes);
    }
  }
}

TEST(FixedTest, EncodeRefusesABadCodeBitsOrBuffer) {
  std::vector<uint8_t> out(8);
  const std::vector<uint8_t> codes = {1, 16, 0};
  EXPECT_EQ(EncodeFixed(codes, 4, out).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeFixed(codes, 5, {out.data(), 1}).status().code(),
            StatusCode::kBufferTooSmall);
  for (int bits : {-1, 0, 1, 9}) {
    EXPECT_EQ(EncodeIndices(IndexCoding::kFixed, codes, bits, 4, out).status().code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(EncodeIndices(static_cast<IndexCoding>(9), codes, 5, 4, out).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(FixedTest, DecodeRefusesWrongLengthAndFilling) {
  std::vector<uint8_t> codes(5);
  std::vector<uint8_t> in = {0x21, 0x43, 0x05, 0x00};
  EXPECT_TRUE(DecodeFixed({in.data(), 3}, 4, codes).ok());
  EXPECT_EQ(codes, (std::vector<uint8_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(DecodeFixed({in.data(), 2}, 4, codes).code(), StatusCode::kCorruptData);
  EXPECT_EQ(DecodeFixed(in, 4, codes).code(), StatusCode::kCorruptData);
  in[2] = 0x15;
  EXPECT_EQ(DecodeFixed({in.data(), 3}, 4, codes).code(), StatusCode::kCorruptData);
}

}  // namespace
}  // namespace elastiquant
