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

TEST(Crc32c, CanBeContinued) {
  EXPECT_EQ(Of("56789", Of("1234")), Of("123456789"));
}

}  // namespace
}  // namespace elastiquant
