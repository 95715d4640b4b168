#include "elastiquant/kernels/targets.h"

#include <gtest/gtest.h>

namespace elastiquant {
namespace {

TEST(Targets, EachCanBeUsed) {
  const std::vector<std::string> names = SimdTargets();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(CurrentSimdTarget(), names.front());
  for (const std::string& name : names) {
    ASSERT_TRUE(UseSimdTarget(name).ok());
    EXPECT_EQ(CurrentSimdTarget(), name);
    EXPECT_EQ(SimdTargets(), names);
  }
  ASSERT_TRUE(UseSimdTarget("auto").ok());
  EXPECT_EQ(CurrentSimdTarget(), names.front());
}

TEST(Targets, UnknownNameGivesTheList) {
  const Status status = UseSimdTarget("MMX");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find(SimdTargets().back()), std::string::npos);
}

}  // namespace
}  // namespace elastiquant
