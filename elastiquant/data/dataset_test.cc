#include "elastiquant/data/dataset.h"

#include <gtest/gtest.h>

#include "elastiquant/data/dataset_testing.h"

namespace elastiquant {
namespace {

TEST_F(DatasetTest, UnknownDirectoriesAreExplained) {
  ExpectError(StatusCode::kNotFound, {"holds no known data set", "data_batch_1.bin"});
  const auto missing = OpenDataset((directory_ / "none").string(), {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("data fetch"), std::string::npos);
}

}  // namespace
}  // namespace elastiquant
