#include "elastiquant/coding/rans.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "elastiquant/coding/coding_test_util.h"
#include "elastiquant/coding/fixed.h"
#include "elastiquant/coding/index_coding.h"
#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

std::vector<uint8_t> Encode(const std::vector<uint8_t>& codes, int bits) {
  std::vector<uint8_t> out(MaxIndexBytes(IndexCoding::kRans, codes.size(), bits, 1));
  const auto size = EncodeIndices(IndexCoding::kRans, codes, bits, 512, out);
  EXPECT_TRUE(size.ok()) << size.status().ToString();
  out.resize(size.ok() ? *size : 0);
  return out;
}

Status Decode(std::span<const uint8_t> in, int bits, std::vector<uint8_t>& codes) {
  return DecodeIndices(IndexCoding::kRans, in, bits, 512, codes);
}

double EntropyBits(const std::vector<uint8_t>& codes) {
  double counts[256] = {}, bits = 0;
  for (uint8_t code : codes) ++counts[code];
  for (double count : counts) {
    if (count > 0) bits += count * std::log2(static_cast<double>(codes.size()) / count);
  }
  return bits;
}

const size_t kLengths[] = {0,     1,     2,     3,     31,    32,    33,   63,   64,
                           65,    1000,  8191,  8192,  8193,  8223,  8224, 8225, 10007,
                           16384, 24575, 24576, 24639, 24640, 24641, 32768};

TEST(RansTest, RoundTripsWithTheSameBytesOnEveryTarget) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (CodePattern pattern : kAllPatterns) {
      for (size_t n : kLengths) {
        const std::vector<uint8_t> codes = MakeCodes(pattern, n, bits);
        const std::vector<uint8_t> first = Encode(codes, bits);
        ASSERT_LE(first.size(), 1 + FixedBytes(n, bits));
        ForEachTarget([&] {
          ASSERT_EQ(Encode(codes, bits), first);
          std::vector<uint8_t> back(n + 1, 0xEE);
          const Status status = DecodeRans(first, bits, {back.data(), n});
          ASSERT_TRUE(status.ok()) << status.ToString();
          ASSERT_EQ(back.back(), 0xEE);
          back.pop_back();
          ASSERT_EQ(back, codes) << bits << " bits, " << n;
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(RansTest, AnyCodeIsKeptEvenNegativeZero) {
  std::vector<uint8_t> codes(9000, 8);
  codes[5] = 0;
  std::vector<uint8_t> back(9000);
  ASSERT_TRUE(Decode(Encode(codes, 4), 4, back).ok());
  EXPECT_EQ(back, codes);
}

TEST(RansTest, RateIsCloseToTheEntropy) {
  const struct {
    int bits;
    size_t n;
    double bits_per_code;  // above the entropy, table and states included
  } cases[] = {{4, 32768, 0.03}, {3, 32768, 0.03}, {2, 32768, 0.03},
               {4, 16384, 0.04}, {8, 32768, 0.08}, {4, 4096, 0.08}};
  for (const auto& c : cases) {
    const auto codes = MakeCodes(CodePattern::kGaussian, c.n, c.bits);
    const double above =
        (8.0 * static_cast<double>(Encode(codes, c.bits).size()) - EntropyBits(codes)) /
        static_cast<double>(c.n);
    RecordProperty(std::to_string(c.bits) + "x" + std::to_string(c.n), std::to_string(above));
    EXPECT_LT(above, c.bits_per_code) << c.bits << " bits, " << c.n;
  }
}

TEST(RansTest, OverheadAtTwoBitsIsSmall) {
  // Probabilities 1/2, 1/4, 1/8, 1/8 (in pairs of signs) need about 2 bits.
  std::vector<uint8_t> codes(16384);
  const LaneKeys keys = MakeLaneKeys({7});
  for (uint32_t i = 0; i < codes.size(); ++i) {
    const uint32_t random = RandomBits(keys, i);
    const int level = std::min(7, std::countl_one(random));
    codes[i] = static_cast<uint8_t>(level == 0 ? 0 : level | (random & 1) << 3);
  }
  const double entropy = EntropyBits(codes);
  EXPECT_LT(8.0 * static_cast<double>(Encode(codes, 4).size()), 1.015 * entropy);
}

TEST(RansTest, ModesForNothingConstantsAndNoise) {
  EXPECT_EQ(Encode({}, 4), (std::vector<uint8_t>{0}));
  EXPECT_EQ(Encode(std::vector<uint8_t>(100, 3), 4), (std::vector<uint8_t>{1, 3}));
  EXPECT_EQ(Encode({1, 2}, 4), (std::vector<uint8_t>{0, 0x21}));
  for (int bits = 2; bits <= 8; ++bits) {
    std::vector<uint8_t> noise(20000);
    for (size_t i = 0; i < noise.size(); ++i) {
      noise[i] =
          static_cast<uint8_t>(RandomBits({1, 2}, static_cast<uint32_t>(i)) >> (32 - bits));
    }
    EXPECT_EQ(Encode(noise, bits).size(), 1 + FixedBytes(noise.size(), bits));
  }
}

TEST(RansTest, EncodeRefusesABadCodeOrBuffer) {
  const std::vector<uint8_t> codes = {1, 16, 0};
  std::vector<uint8_t> out(MaxIndexBytes(IndexCoding::kRans, 3, 4, 1));
  EXPECT_EQ(EncodeRans(codes, 4, out).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeRans(codes, 5, {out.data(), 10}).status().code(),
            StatusCode::kBufferTooSmall);
}

// Truncated or changed bytes give an error or some codes, and never touch other memory (which
// AddressSanitizer sees: each input stands alone in an allocation of its own size).
TEST(RansTest, DamagedBytesAreHarmless) {
  ForEachTarget([] {
    for (const size_t n : {500, 8200, 24600}) {
      for (const int bits : {4, 8}) {
        const auto codes = MakeCodes(CodePattern::kGaussian, n, bits);
        const std::vector<uint8_t> good = Encode(codes, bits);
        std::vector<uint8_t> back(n);
        const size_t step = 1 + n / 100;
        for (size_t size = 0; size < good.size(); size += size < 100 ? 1 : step) {
          const std::vector<uint8_t> cut(good.begin(), good.begin() + static_cast<long>(size));
          EXPECT_FALSE(Decode(cut, bits, back).ok()) << size;
        }
        size_t unnoticed = 0, flips = 0;
        for (size_t at = 0; at < good.size(); at += at < 100 ? 1 : step) {
          for (const uint8_t flip : {uint8_t{1}, uint8_t{0x80}, uint8_t{0xFF}}) {
            std::vector<uint8_t> bad = good;
            bad[at] ^= flip;
            ++flips;
            if (Decode(bad, bits, back).ok()) ++unnoticed;
          }
        }
        // Stored codes (mode 0) cannot tell.
        if (good[0] != 0) {
          EXPECT_LE(unnoticed * 100, flips) << n << " codes of " << bits << " bits";
        }
        std::vector<uint8_t> longer = good;
        longer.push_back(0);
        EXPECT_FALSE(Decode(longer, bits, back).ok());
      }
    }
  });
}

}  // namespace
}  // namespace elastiquant
