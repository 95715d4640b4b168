#include "elastiquant/base/power.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace elastiquant {
namespace {

TEST(PortablePow, IsThePower) {
  for (double x : {0x1p-149, 1e-30, 1e-7, 0.2, 0.5, 0.7071067811865475, 0.70710678118654757,
                   0.999999, 1.0, 1.0000001, 1.5, 2.0, 3.0, 1e6, 4e9}) {
    for (double y : {1e-6, 0.1, 1.0 / 3, 0.5, 1.0, 1.5, 2.0, 3.0, 7.25}) {
      const double expected = std::pow(x, y);
      if (expected < std::numeric_limits<double>::min()) continue;  // it has few digits
      const double tolerance = 0x1p-52 * (4 + std::abs(y * std::log2(x)));
      EXPECT_NEAR(PortablePow(x, y) / expected, 1, tolerance + 0x1p-52) << x << " " << y;
    }
  }
}

TEST(PortablePow, IsExactWhereItMustBe) {
  EXPECT_EQ(PortablePow(0, 3), 0);
  EXPECT_EQ(PortablePow(1, 1e30), 1);
  EXPECT_EQ(PortablePow(0.5, 3), 0.125);
  EXPECT_EQ(PortablePow(4, 0.5), 2);
  EXPECT_EQ(PortablePow(0.5, 1e30), 0);
  EXPECT_EQ(PortablePow(2, 1e30), std::numeric_limits<double>::infinity());
}

TEST(PortableLog2, IsTheLogarithmAndUndoesThePower) {
  for (double x : {0x1p-1074, 1e-300, 1e-7, 0.3, 0.9999999, 1.0, 1.5, 2.0, 1e6, 1e300}) {
    EXPECT_NEAR(PortableLog2(x), std::log2(x), 1e-15 * (1 + std::abs(std::log2(x)))) << x;
  }
  for (double x : {-1000.25, -3.0, -0.1, 0.0, 0.7, 64.0, 900.5}) {
    EXPECT_NEAR(PortableLog2(PortableExp2(x)), x, 1e-15 * (1 + std::abs(x))) << x;
  }
  EXPECT_EQ(PortableExp2(-1e9), 0);
}

// Frozen: encoded norms depend on them to the last bit.
TEST(PortablePow, HasTheSameBitsOnEveryMachine) {
  EXPECT_EQ(PortablePow(0.3, 2.5), 0x1.93d32bceafc28p-5);
  EXPECT_EQ(PortablePow(123.456, 1.0 / 3), 0x1.3ead4f488ee35p+2);
  EXPECT_EQ(PortablePow(1e-20, 1.75), 0x1.a95a5b7f87a0fp-117);
}

}  // namespace
}  // namespace elastiquant
