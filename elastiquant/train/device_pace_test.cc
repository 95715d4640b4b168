#include "elastiquant/train/device_pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/models/model.h"
#include "elastiquant/train/device_class.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;

TEST(ParseComputeTest, ReadsTimesSpeedsAndDevices) {
  const auto speeds = ParseCompute("250ms,1.5s,40us,40gflops,jetson-nano").value();
  ASSERT_EQ(speeds.size(), 5U);
  EXPECT_DOUBLE_EQ(speeds[0].seconds, .25);
  EXPECT_DOUBLE_EQ(speeds[1].seconds, 1.5);
  EXPECT_DOUBLE_EQ(speeds[2].seconds, 4e-5);
  EXPECT_EQ(speeds[3].seconds, 0);
  EXPECT_EQ(speeds[3].gflops, 40);
  EXPECT_EQ(speeds[4].gflops, FindDeviceClass("jetson-nano")->gflops);
}

TEST(ParseComputeTest, AnythingElseSaysWhatIsRight) {
  for (const char* text : {"", "fast", "0s", "-1ms", "infs", "5", "1s,", ",1s", "gflops"}) {
    const auto speeds = ParseCompute(text);
    ASSERT_FALSE(speeds.ok()) << text;
    EXPECT_THAT(speeds.status().message(), HasSubstr("jetson-nano")) << text;
  }
}

TEST(DeviceClassTest, EachSaysWhereItsNumbersAreFrom) {
  for (const DeviceClass& device : DeviceClasses()) {
    EXPECT_GT(device.gflops, 0);
    EXPECT_THAT(std::string(device.source), HasSubstr("assumed")) << device.name;
    EXPECT_EQ(FindDeviceClass(device.name), &device);
  }
  EXPECT_EQ(FindDeviceClass("laptop"), nullptr);
}

TEST(DeviceClassTest, AModelMustFitIntoItsMemory) {
  const DeviceClass& coral = *FindDeviceClass("coral");   // has 1 GiB
  EXPECT_TRUE(CheckMemory(coral, 25'600'000).ok());       // ResNet-50
  const Status status = CheckMemory(coral, 124'000'000);  // GPT-2
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("coral has 1 GiB"));
  EXPECT_THAT(status.message(), HasSubstr("7.2gflops"));
}

// Forward takes a third of a step, and backward the rest in even parts.
TEST(DevicePaceTest, EachPartIsThereWhenItIsDue) {
  TrainOptions options;
  options.compute = "900ms";
  const auto pace = DevicePace::Make(options, 0, 1, {}).value();
  const std::shared_ptr<Model> model = MakeModel("mlp", {}).value();
  const Batch batch;
  for (int step = 0; step < 2; ++step) {
    const Stopwatch watch;
    pace->Begin(*model, batch);
    pace->AwaitFilled(10, 40);
    EXPECT_GE(watch.Seconds(), .45);
    pace->AwaitFilled(20, 40);
    EXPECT_GE(watch.Seconds(), .75);
    EXPECT_LT(watch.Seconds(), .9) << "the last part is still to come";
    pace->End();
    EXPECT_GE(watch.Seconds(), .9);
  }
}

TEST(DevicePaceTest, ThereIsOneDeviceForAllOrOneForEach) {
  TrainOptions options;
  options.compute = "1ms,2ms";
  EXPECT_TRUE(DevicePace::Make(options, 1, 2, {}).ok());
  const auto three = DevicePace::Make(options, 1, 3, {});
  EXPECT_THAT(three.status().message(), HasSubstr("2 devices, and there are 3 workers"));
}

}  // namespace
}  // namespace elastiquant
