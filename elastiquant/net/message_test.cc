#include "elastiquant/net/message.h"

#include <gtest/gtest.h>

#include <array>

namespace elastiquant {
namespace {

// docs/frame-format.md, section 16.
TEST(MessageHeader, IsLittleEndian) {
  std::array<uint8_t, kMessageHeaderBytes> bytes{};
  WriteHeader({.size = 0x030405060708, .metric = 0x0102, .arrival_ns = -2}, bytes);
  const std::array<uint8_t, kMessageHeaderBytes> expected{
      8, 7, 6, 5, 4, 3, 2, 1, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
  EXPECT_EQ(bytes, expected);
  const MessageHeader back = ReadHeader(bytes);
  EXPECT_EQ(back.size, 0x030405060708u);
  EXPECT_EQ(back.metric, 0x0102);
  EXPECT_EQ(back.arrival_ns, -2);
}

}  // namespace
}  // namespace elastiquant
