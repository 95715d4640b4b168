#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "elastiquant/cli/program_testing.h"

namespace elastiquant::cli {
namespace {

using ::testing::HasSubstr;

using AnalyzeTest = ProgramTest;

TEST_F(AnalyzeTest, CoversEveryRegisteredCodec) {
  const Outcome run = Run("analyze --gaussian 4096 --draws 4 --json");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  const auto report = nlohmann::json::parse(run.out);
  ASSERT_EQ(report.at("inputs").size(), 1u);
  EXPECT_EQ(report["inputs"][0].at("elements"), 4096);
  std::set<std::string> specs;
  for (const auto& row : report["inputs"][0].at("results")) {
    specs.insert(row.at("spec").get<std::string>());
    if (row.contains("error")) continue;
    EXPECT_GT(row.at("bits_per_coordinate"), 0.0) << row;
    EXPECT_GE(row.at("nmse"), 0.0) << row;
    EXPECT_LE(row.at("cosine"), 1.0 + 1e-9) << row;
    const std::string kind = row.at("class");
    EXPECT_TRUE(kind == "contractive" || kind == "biased" || row.at("bias_z") < 6.0) << row;
    if (!row.at("entropy").is_null()) {
      EXPECT_LT(row.at("entropy"), row.at("bits_per_coordinate")) << row;
    }
  }
  const auto codecs = nlohmann::json::parse(Run("codecs --json").out);
  EXPECT_GE(specs.size(), codecs.size());
  for (const auto& codec : codecs) {
    const std::string name = codec.at("name");
    const auto same = [&](const std::string& spec) {
      return spec == name || spec.starts_with(name + ":") || spec.starts_with(name + "|");
    };
    EXPECT_TRUE(std::ranges::any_of(specs, same)) << name;
  }
}

TEST_F(AnalyzeTest, TakesFilesWhoseNamesAreNotUtf8) {
  WriteInput(100);
  const std::string named = File("in\xe9.npy");
  std::filesystem::rename(File("in.npy"), named);
  const Outcome run = Run("analyze --codec fp32 --draws 2 --json " + named);
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("in\xEF\xBF\xBD.npy"));
}

TEST_F(AnalyzeTest, RatesSweepWhatACodecTakes) {
  const Outcome run = Run("analyze --rates --gaussian 2000 --draws 2 --json");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  std::set<std::string> codecs;
  const auto report = nlohmann::json::parse(run.out);
  for (const auto& row : report["inputs"][0]["results"]) {
    codecs.insert(row.at("codec").get<std::string>());
  }
  for (const char* spec : {"dither:bits=0.5", "dither:bits=8", "elastic:bits=2",
                           "qsgd:bits=8|rans", "fp32", "bf16", "bf16:rounding=stochastic"}) {
    EXPECT_TRUE(codecs.contains(spec)) << spec;
  }
  EXPECT_FALSE(codecs.contains("elastic:bits=0.5"));
}

TEST_F(AnalyzeTest, TakesFilesAndFoldersAndShowsTablesByClass) {
  WriteInput(3000);
  std::filesystem::create_directories(File("gradients"));
  std::filesystem::copy(File("in.npy"), File("gradients/gradient-000002.npy"));
  std::filesystem::copy(File("in.npy"), File("gradients/gradient-000001.npy"));
  const Outcome run =
      Run(fmt::format("analyze --draws 3 --codec bf16 --codec fp32 --codec "
                      "qsgd:bits=3 {} {}",
                      File("in.npy"), File("gradients")));
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_EQ(run.err, "");
  const size_t first = run.out.find("gradient-000001.npy: 3000 floats");
  ASSERT_NE(first, std::string::npos) << run.out;
  EXPECT_LT(run.out.find("in.npy: 3000 floats"), first);
  EXPECT_LT(first, run.out.find("gradient-000002.npy: 3000 floats"));
  const auto at = [&](const char* words) { return run.out.find(words, first); };
  EXPECT_LT(at("\nlossless\nfp32 "), at("\nunbiased\nqsgd:bits=3 "));
  EXPECT_LT(at("\nunbiased\nqsgd:bits=3 "), at("\nbiased\nbf16 "));
}

TEST_F(AnalyzeTest, FitsCodecsThatAdapt) {
  const Outcome run = Run("analyze --gaussian 8192 --draws 4 --json --codec alq:bits=3");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  const auto row = nlohmann::json::parse(run.out)["inputs"][0]["results"][0];
  EXPECT_LT(row.at("nmse"), 1);  // unadapted it is 17
  EXPECT_NE(row.at("fitted"), row.at("spec"));
  EXPECT_EQ(row.at("codec"), "alq:bits=3");
}

TEST_F(AnalyzeTest, GivesCodecsForMatricesTheShapesBesideTheFile) {
  WriteInput(3000);
  const std::string command =
      "analyze --draws 2 --json --codec powersgd:rank=1 " + File("in.npy");
  const auto bits = [&] {
    const Outcome run = Run(command);
    EXPECT_EQ(run.exit_code, kExitDone) << run.err;
    return nlohmann::json::parse(run.out)["inputs"][0]["results"][0]
        .at("bits_per_coordinate")
        .get<double>();
  };
  const auto write = [&](const std::string& text) {
    ASSERT_TRUE(WriteFile(File("layers.json"), {AsBytes(std::span<const char>(text))}).ok());
  };
  const double flat = bits();
  EXPECT_NEAR(flat, 32 * 110 / 3000.0, 0.3);  // one matrix of 54 x 55 or so
  write(R"([{"name": "w", "shape": [10, 5, 40], "offset": 0, "elements": 2000},
            {"name": "b", "shape": [1000], "offset": 2000, "elements": 1000}])");
  EXPECT_NEAR(bits(), 32 * (10 + 200 + 1000) / 3000.0, 0.3);
  write(R"([{"name": "w", "shape": [10], "offset": 0, "elements": 10}])");
  const Outcome other = Run(command);
  EXPECT_EQ(other.exit_code, kExitUsage);
  EXPECT_THAT(other.err, HasSubstr("layers.json"));
  write("{");
  EXPECT_EQ(Run(command).exit_code, kExitUsage);
}

// Squares of such values overflow a float: some codecs refuse, the others are shown.
TEST_F(AnalyzeTest, ACodecThatRefusesDoesNotStopTheOthers) {
  const std::vector<float> values(600, std::numeric_limits<float>::max());
  ASSERT_TRUE(WriteNpy(File("in.npy"), values).ok());
  const Outcome run =
      Run("analyze --draws 2 --json --codec qsgd --codec fp32 " + File("in.npy"));
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  const auto rows = nlohmann::json::parse(run.out)["inputs"][0]["results"];
  EXPECT_EQ(rows[0].at("nmse"), 0.0);
  EXPECT_THAT(rows[1].at("error"), HasSubstr("norm"));
  EXPECT_FALSE(rows[1].contains("nmse"));
}

TEST_F(AnalyzeTest, BadInputIsToldApartByExitCode) {
  EXPECT_EQ(Run("analyze").exit_code, kExitUsage);
  EXPECT_EQ(Run("analyze " + File("nothing.npy")).exit_code, kExitUsage);
  const Outcome empty = Run("analyze " + folder_);
  EXPECT_EQ(empty.exit_code, kExitUsage);
  EXPECT_THAT(empty.err, HasSubstr("--dump-gradients"));
  const Outcome unknown = Run("analyze --codec qsgd9 --gaussian 10");
  EXPECT_EQ(unknown.exit_code, kExitUsage);
  EXPECT_THAT(unknown.err, HasSubstr("nuqsgd"));
  const std::vector<float> values{1, std::numeric_limits<float>::quiet_NaN()};
  ASSERT_TRUE(WriteNpy(File("in.npy"), values).ok());
  const Outcome nan = Run("analyze " + File("in.npy"));
  EXPECT_EQ(nan.exit_code, kExitNonFinite);
  EXPECT_THAT(nan.err, HasSubstr("coordinate 1"));
}

}  // namespace
}  // namespace elastiquant::cli
