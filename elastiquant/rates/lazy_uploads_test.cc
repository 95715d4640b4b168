#include "elastiquant/rates/lazy_uploads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace elastiquant::rates {
namespace {

using nlohmann::ordered_json;

TEST(LazyUploadsTest, RulesComeAsFarWithFewUploadsMostOfThemFromWorkersThatBendMost) {
  const auto found = LazyUploads({.workers = 5, .gap = 1e-4}).value();
  const ordered_json& rows = found["rows"];
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0]["uploads"].get<int64_t>(), 5 * rows[0]["steps"].get<int64_t>());
  for (const ordered_json& row : rows) {
    SCOPED_TRACE(row.dump());
    ASSERT_FALSE(row["steps"].is_null());
    EXPECT_EQ(row["uploads_by_worker"].size(), 5u);
    if (row == rows[0]) continue;
    EXPECT_LT(row["uploads"].get<double>(), rows[0]["uploads"].get<double>() / 2);
    EXPECT_LT(row["bytes"].get<double>(), rows[0]["bytes"].get<double>());
    EXPECT_LT(row["steps"].get<double>(), 2 * rows[0]["steps"].get<double>());
    EXPECT_LT(row["uploads_by_worker"][0].get<int64_t>(),
              row["uploads_by_worker"][4].get<int64_t>());
  }
}

TEST(LazyUploadsTest, RefusesOptionsOutOfRange) {
  for (const LazyUploadOptions& options :
       {LazyUploadOptions{.workers = 1}, LazyUploadOptions{.gap = 0}}) {
    const auto found = LazyUploads(options);
    ASSERT_FALSE(found.ok());
    EXPECT_THAT(found.status().message(), testing::HasSubstr("must be from"));
  }
}

}  // namespace
}  // namespace elastiquant::rates
