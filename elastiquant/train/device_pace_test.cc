#include "elastiquant/train/emulated_compute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "elastiquant/base/npy_front.h"
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

class GradientReplayTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "gradient_replay_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    shapes_ = {MakeParameterShape("a", std::array<size_t, 2>{2, 2}),
               MakeParameterShape("b", std::array<size_t, 1>{3})};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const char* name, const std::vector<float>& values) {
    std::ofstream file(folder_ / name, std::ios::binary);
    file << NpyFront(values.size());
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }

  std::filesystem::path folder_;
  std::vector<ParameterShape> shapes_;
};

TEST_F(GradientReplayTest, BucketsGetTheirPartsOfEachGradientInTurn) {
  Write("gradient-000001.npy", {1, 2, 3, 4, 5, 6, 7});
  Write("gradient-000090.npy", {-1, -2, -3, -4, -5, -6, -7});
  const auto replay = GradientReplay::Open(folder_, shapes_).value();
  EXPECT_EQ(replay->gradients(), 2U);
  PlannedBucket bucket;
  bucket.slots.resize(2);
  bucket.slots[0].parameter = 1;
  bucket.slots[0].offset = 0;
  bucket.slots[1].parameter = 0;
  bucket.slots[1].offset = 3;
  std::vector<float> values(7);
  replay->Fill(0, bucket, values);
  EXPECT_EQ(values, (std::vector<float>{5, 6, 7, 1, 2, 3, 4}));
  replay->Fill(3, bucket, values);
  EXPECT_EQ(values, (std::vector<float>{-5, -6, -7, -1, -2, -3, -4}));
}

TEST_F(GradientReplayTest, GradientsOfAnotherModelAreRefused) {
  const auto none = GradientReplay::Open(folder_, shapes_);
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("--dump-gradients"));
  EXPECT_FALSE(GradientReplay::Open(folder_ / "missing", shapes_).ok());
  Write("gradient-000001.npy", {1, 2, 3, 4, 5, 6});
  const auto other = GradientReplay::Open(folder_, shapes_);
  EXPECT_THAT(other.status().message(), HasSubstr("another model"));
  std::ofstream(folder_ / "gradient-000001.npy") << std::string(NpyFront(7).size() + 28, 'x');
  EXPECT_FALSE(GradientReplay::Open(folder_, shapes_).ok());  // as long, but no such file
}

}  // namespace
}  // namespace elastiquant
