#include "elastiquant/train/gradient_dump.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "elastiquant/base/npy_front.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::set<int64_t> Steps(std::string_view text, int64_t total) {
  const auto steps = ParseDumpSteps(text, total);
  EXPECT_TRUE(steps.ok()) << steps.status().ToString();
  return steps.ok() ? *steps : std::set<int64_t>();
}

TEST(DumpStepsTest, TakesStepsAndPerCent) {
  EXPECT_THAT(Steps("7", 10), ElementsAre(7));
  EXPECT_THAT(Steps("10,1,7", 10), ElementsAre(1, 7, 10));
  EXPECT_THAT(Steps("0%,50%,100%", 780), ElementsAre(1, 390, 780));
  EXPECT_THAT(Steps("50%,1,100%", 3), ElementsAre(1, 2, 3));  // rounded up
  EXPECT_THAT(Steps("0%,1%,100%", 1), ElementsAre(1));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Steps("100%", kMost), ElementsAre(kMost));
}

TEST(DumpStepsTest, ErrorsNameTheWordAndWhatIsValid) {
  for (const char* word : {"", "0", "-1", "x", "3x", "1.5", "101%", "-1%", "%", " 3", "1e3",
                           "99999999999999999999"}) {
    const Status status = ParseDumpSteps(word, 10).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << word;
    EXPECT_THAT(status.message(), HasSubstr("'" + std::string(word) + "'"));
    EXPECT_THAT(status.message(), HasSubstr("1,390,50%,100%"));
  }
  EXPECT_FALSE(ParseDumpSteps("1,,2", 10).ok());
  EXPECT_FALSE(ParseDumpSteps("1,", 10).ok());
  EXPECT_THAT(ParseDumpSteps("1,11", 10).status().message(),
              HasSubstr("step 11 is beyond the run, which has 10 steps"));
}

std::string Contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class GradientDumpTest : public testing::Test {
 protected:
  GradientDumpTest()
      : folder_(fs::path(testing::TempDir()) / ("eq_dump_" + std::to_string(getpid()))) {}
  ~GradientDumpTest() override { fs::remove_all(folder_); }

  const fs::path folder_;
  const std::vector<NamedTensor> parameters_ = {{"conv.weight", at::empty({2, 1, 3})},
                                                {"conv.bias", at::empty({2})},
                                                {"none", at::empty({0})},
                                                {"scale", at::empty({})}};
};

TEST_F(GradientDumpTest, PutsTheBucketsInTheOrderOfTheParameters) {
  GradientDump dump(folder_ / "gradients", {3, 5}, parameters_);
  ASSERT_TRUE(dump.WriteLayers().ok());
  EXPECT_TRUE(dump.Due(3));
  EXPECT_FALSE(dump.Due(4));

  // Values after the last parameter of a bucket (the loss, say) are no part of the gradient.
  const std::vector<float> small = {8, 6, 7, 99};
  const std::vector<float> large = {0, 1, 2, 3, 4, 5};
  dump.Capture(
      {.slots = {{3, 0}, {2, 1}, {1, 1}}, .elements = 4, .exact = true, .name = "small"},
      small);
  dump.Capture({.slots = {{0, 0}}, .elements = 6, .exact = false, .name = "large"}, large);
  ASSERT_TRUE(dump.Write(3).ok());

  const std::string file = Contents(folder_ / "gradients" / "gradient-000003.npy");
  const std::string front = NpyFront(9);
  ASSERT_EQ(file.size(), front.size() + 9 * sizeof(float));
  EXPECT_EQ(file.substr(0, front.size()), front);
  std::vector<float> values(9);
  std::memcpy(values.data(), file.data() + front.size(), 9 * sizeof(float));
  EXPECT_THAT(values, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST_F(GradientDumpTest, LayersSayWhereEachParameterLies) {
  ASSERT_TRUE(GradientDump(folder_, {1}, parameters_).WriteLayers().ok());
  const auto layers = nlohmann::json::parse(Contents(folder_ / "layers.json"));
  const auto expected = nlohmann::json::parse(R"([
    {"name": "conv.weight", "shape": [2, 1, 3], "offset": 0, "elements": 6},
    {"name": "conv.bias", "shape": [2], "offset": 6, "elements": 2},
    {"name": "none", "shape": [0], "offset": 8, "elements": 0},
    {"name": "scale", "shape": [], "offset": 8, "elements": 1}])");
  EXPECT_EQ(layers, expected);
}

TEST_F(GradientDumpTest, RemovesItsOwnFilesAndNoOthers) {
  RemoveGradientDumps(folder_);  // none there yet
  const GradientDump dump(folder_, {1, 2}, parameters_);
  ASSERT_TRUE(dump.WriteLayers().ok());
  ASSERT_TRUE(dump.Write(1).ok());
  std::ofstream(folder_ / "notes.txt") << "mine";
  RemoveGradientDumps(folder_);
  EXPECT_FALSE(fs::exists(folder_ / "layers.json"));
  EXPECT_FALSE(fs::exists(folder_ / "gradient-000001.npy"));
  EXPECT_TRUE(fs::exists(folder_ / "notes.txt"));
  fs::remove(folder_ / "notes.txt");
  RemoveGradientDumps(folder_);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(GradientDumpTest, SaysWhatCannotBeWritten) {
  std::ofstream(folder_) << "a file where the folder should be";
  const GradientDump dump(folder_, {1}, parameters_);
  EXPECT_EQ(dump.WriteLayers().code(), StatusCode::kIo);
  EXPECT_THAT(dump.WriteLayers().message(), HasSubstr(folder_.string()));
  EXPECT_EQ(dump.Write(1).code(), StatusCode::kIo);
}

}  // namespace
}  // namespace elastiquant
