#include "elastiquant/base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace elastiquant {
namespace {

uint32_t Of(std::string_view s, uint32_t crc = 0) {
  return Crc32c({reinterpret_cast<const uint8_t*>(s.data()), s.size()}, crc);
}

TEST(Crc32c, PublishedVectors) {  // RFC 3720, B.4
  EXPECT_EQ(Of("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0)), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0xFF)), 0x62A8AB43u);
  EXPECT_EQ(Of(""), 0u);
}

// Bit by bit, as the RFC defines it.
uint32_t ByDefinition(std::span<const uint8_t> data) {
  uint32_t crc = ~0u;
  for (uint8_t byte : data) {
    crc ^= byte;
    for (int k = 0; k < 8; ++k) crc = (crc & 1) ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
  }
  return ~crc;
}

TEST(Crc32c, AgreesWithTheDefinitionAtEveryLength) {
  std::vector<uint8_t> data(20000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * i >> 3 ^ i);
  std::vector<size_t> lengths = {0, 1, 7, 8, 9, 15, 3072, 19999};
  for (size_t edge = 128; edge <= 2048; edge += 128) {  // blocks of every function end here
    for (size_t n : {edge - 1, edge, edge + 1}) lengths.push_back(n);
  }
  for (const Crc32cFunction function : Crc32cFunctions()) {
    for (size_t n : lengths) {
      const auto part = std::span<const uint8_t>(data).subspan(n % 3, n);
      EXPECT_EQ(function(part, 0), ByDefinition(part)) << n;
      const auto front = part.first(n / 2);
      EXPECT_EQ(function(part.subspan(n / 2), function(front, 0)), ByDefinition(part)) << n;
    }
  }
}

TEST(Crc32c, CanBeContinued) { EXPECT_EQ(Of("56789", Of("1234")), Of("123456789")); }

}  // namespace
}  // namespace elastiquant
