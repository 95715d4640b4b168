#include "elastiquant/data/generated.h"

#include <gtest/gtest.h>

#include "elastiquant/data/dataset_testing.h"

namespace elastiquant {
namespace {

TEST(GeneratedTest, SizesAndLabels) {
  const auto dataset = OpenDataset("generated", {.generated_train = 40, .generated_test = 20});
  ASSERT_TRUE(dataset.ok());
  const DatasetInfo& info = (*dataset)->info();
  EXPECT_EQ(info.train_size, 40);
  EXPECT_EQ(info.test_size, 20);
  EXPECT_EQ(info.classes, 10);
  std::vector<int> labels(10);
  double sum = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const Sample sample = ReadSample(**dataset, Split::kTrain, i);
    ++labels[static_cast<size_t>(sample.label)];
    for (const float value : sample.values) sum += static_cast<double>(value);
  }
  EXPECT_EQ(labels, std::vector<int>(10, 4));
  EXPECT_NEAR(sum / (40 * 3072), 0.0, 0.2);
  EXPECT_EQ(OpenDataset("generated", {.generated_train = 0}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(GeneratedTest, BytesDependOnSeedSplitAndIndexOnly) {
  Bytes a(3072), b(3072);
  DrawGenerated(1, Split::kTrain, 7, a);
  DrawGenerated(1, Split::kTrain, 7, b);
  EXPECT_EQ(a, b);
  DrawGenerated(2, Split::kTrain, 7, b);
  EXPECT_NE(a, b);
  DrawGenerated(1, Split::kTest, 7, b);
  EXPECT_NE(a, b);
  DrawGenerated(1, Split::kTrain, 17, b);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace elastiquant
