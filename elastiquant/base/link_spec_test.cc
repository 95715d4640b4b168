#include "elastiquant/base/link_spec.h"

#include <gtest/gtest.h>

namespace elastiquant {
namespace {

TEST(ParseLink, TakesRateAndDelay) {
  const LinkSpec link = ParseLink("20mbit,10ms").value();
  EXPECT_DOUBLE_EQ(link.bits_per_second, 20e6);
  EXPECT_DOUBLE_EQ(link.delay_seconds, 0.01);
  EXPECT_DOUBLE_EQ(ParseLink("200kbit,1s").value().bits_per_second, 200e3);
  EXPECT_DOUBLE_EQ(ParseLink("2.5gbit").value().bits_per_second, 2.5e9);
  EXPECT_DOUBLE_EQ(ParseLink("2.5gbit").value().delay_seconds, 0);
  EXPECT_DOUBLE_EQ(ParseLink("1mbit,250us").value().delay_seconds, 250e-6);
  EXPECT_DOUBLE_EQ(ParseLink("0.001kbit,3600s").value().bits_per_second, 1);
}

TEST(ParseLink, RefusesAnythingElseAndSaysWhatIsRight) {
  for (const char* text :
       {"", "20", "mbit", "20mbit,", "20mbit,10", "20mbit,10ms,1", "0mbit", "-1mbit", "20 mbit",
        "20MBit", "nanmbit", "infmbit", "20mbit,-1ms", "1e-20kbit", "20mbit,3601s"}) {
    const auto link = ParseLink(text);
    ASSERT_FALSE(link.ok()) << text;
    EXPECT_EQ(link.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(link.status().message().find("20mbit,10ms"), std::string::npos);
  }
}

}  // namespace
}  // namespace elastiquant
