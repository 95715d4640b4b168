#include "elastiquant/kernels/pack.h"

#include <gtest/gtest.h>

#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

std::vector<uint8_t> RandomCodes(size_t n, int bits) {
  std::vector<uint8_t> codes(n);
  const LaneKeys keys = MakeLaneKeys(DeriveKey(1, n, bits, 0));
  for (size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(RandomBits(keys, static_cast<uint32_t>(i)) >> (32 - bits));
  }
  return codes;
}

std::vector<uint8_t> PackBitByBit(const std::vector<uint8_t>& codes, int bits) {
  std::vector<uint8_t> packed(PackedBytes(codes.size(), bits));
  for (size_t i = 0; i < codes.size() * bits; ++i) {
    const int bit = codes[i / bits] >> (i % bits) & 1;
    packed[i / 8] = static_cast<uint8_t>(packed[i / 8] | bit << (i % 8));
  }
  return packed;
}

std::vector<size_t> PackLengths() {
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 300; ++n) lengths.push_back(n);
  for (size_t n : {511, 512, 513, 1000, 4096, 4099}) lengths.push_back(n);
  return lengths;
}

TEST(PackTest, SizeIsRoundedUpToBytes) {
  EXPECT_EQ(PackedBytes(0, 4), 0u);
  EXPECT_EQ(PackedBytes(1, 4), 1u);
  EXPECT_EQ(PackedBytes(3, 3), 2u);
  EXPECT_EQ(PackedBytes(9, 5), 6u);
  EXPECT_EQ(PackedBytes(size_t{1} << 61, 8), size_t{1} << 61);
}

TEST(PackTest, EveryTargetPacksAsBitByBit) {
  ForEachTarget([] {
    for (int bits = 1; bits <= 8; ++bits) {
      for (size_t n : PackLengths()) {
        const std::vector<uint8_t> codes = RandomCodes(n, bits);
        // One byte more than needed, which must stay as it is.
        std::vector<uint8_t> packed(PackedBytes(n, bits) + 1, 0xA5);
        const uint8_t all = PackCodes(codes.data(), n, bits, packed.data());
        if (bits < 8) {
          EXPECT_EQ(all >> bits, 0) << bits << " bits, " << n;
        }
        EXPECT_EQ(packed.back(), 0xA5) << bits << " bits, " << n;
        packed.pop_back();
        ASSERT_EQ(packed, PackBitByBit(codes, bits)) << bits << " bits, " << n;

        std::vector<uint8_t> back(n + 1, 0xA5);
        UnpackCodes(packed.data(), n, bits, back.data());
        EXPECT_EQ(back.back(), 0xA5) << bits << " bits, " << n;
        back.pop_back();
        ASSERT_EQ(back, codes) << bits << " bits, " << n;
      }
    }
  });
}

TEST(PackTest, ReportsACodeThatDoesNotFit) {
  ForEachTarget([] {
    for (int bits = 1; bits < 8; ++bits) {
      for (size_t n : {1, 7, 8, 9, 200, 513}) {
        for (size_t at : {size_t{0}, n / 2, n - 1}) {
          std::vector<uint8_t> codes(n), packed(PackedBytes(n, bits));
          codes[at] = static_cast<uint8_t>(1 << bits);
          EXPECT_NE(PackCodes(codes.data(), n, bits, packed.data()) >> bits, 0);
        }
      }
    }
  });
}

}  // namespace
}  // namespace elastiquant
