#include "elastiquant/train/gradient_replay.h"

#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "elastiquant/base/npy_front.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;

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
