#include "elastiquant/runs/run_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

namespace elastiquant {
namespace {

StepRecord Step(int64_t step, double loss) {
  return {.step = step,
          .epoch = 1,
          .loss = loss,
          .accuracy = 50,
          .learning_rate = 0.1,
          .seconds = {.compute = 0.1,
                      .encode = 0.02,
                      .transmit = 0.3,
                      .wait = 0.4,
                      .decode = 0.01,
                      .total = 0.5},
          .bytes_up = 1000,
          .bytes_down = 900,
          .images = 64,
          .squared_error = 1,
          .squared_norm = 4};
}

TEST(RunRecordTest, SummaryAddsUpTheSteps) {
  RunRecord record;
  record.AddStep(Step(1, 2.0));
  record.AddStep(Step(2, 1.0));
  record.EndEpoch(1, /*is_whole=*/true, 80, 0.5);
  record.AddStep(Step(3, 0.5));
  record.EndEpoch(2, /*is_whole=*/true, 90, 0.25);
  const auto summary = record.Summary(/*coordinates=*/500, /*world_size=*/2);
  EXPECT_EQ(summary["steps"], 3);
  EXPECT_EQ(summary["bytes_up"], 3000);
  EXPECT_EQ(summary["bytes_down"], 2700);
  EXPECT_DOUBLE_EQ(summary["seconds"]["total"], 1.5);
  EXPECT_DOUBLE_EQ(summary["seconds_per_step"], 0.5);
  EXPECT_DOUBLE_EQ(summary["train_loss"], 0.5);
  EXPECT_DOUBLE_EQ(summary["test_accuracy"], 90);
  EXPECT_DOUBLE_EQ(summary["nmse"], 0.25);
  EXPECT_DOUBLE_EQ(summary["bits_per_coordinate"], 16.0);  // 8 * 3000 / (1 * 500 * 3)
  ASSERT_EQ(summary["epochs"].size(), 2u);
  EXPECT_DOUBLE_EQ(summary["epochs"][0]["train_loss"], 1.5);
  EXPECT_DOUBLE_EQ(summary["epochs"][0]["seconds"]["wait"], 0.8);
}

TEST(RunRecordTest, BytesBecomeTheMeanOverTheWorkers) {
  RunRecord record;
  record.AddStep(Step(1, 1));
  record.AddStep(Step(2, 1));
  EXPECT_EQ(record.own_bytes().up, 2000u);
  EXPECT_EQ(record.own_bytes().down, 1800u);
  record.SetMeanBytes({1990, 1810});
  EXPECT_EQ(record.own_bytes().up, 0u);
  EXPECT_EQ(record.epoch().bytes_up, 1990u);
  record.EndEpoch(1, /*is_whole=*/true, 50, 1);
  record.AddStep(Step(3, 1));
  record.SetMeanBytes({1003, 897});
  EXPECT_EQ(record.epoch().bytes_up, 1003u);
  const auto summary = record.Summary(1, 1);
  EXPECT_EQ(summary["bytes_up"], 2993u);
  EXPECT_EQ(summary["bytes_down"], 2707u);
}

TEST(RunRecordTest, FullPrecisionHas32BitsPerCoordinate) {
  RunRecord record;
  StepRecord step = Step(1, 1);
  step.bytes_up = 2 * 3 * 4 * 1000 / 4;  // 2(N-1)/N of 1000 floats, N = 4
  record.AddStep(step);
  EXPECT_DOUBLE_EQ(record.Summary(1000, 4)["bits_per_coordinate"], 32.0);
  EXPECT_DOUBLE_EQ(record.Summary(1000, 1)["bits_per_coordinate"], 0.0);
}

TEST(RunRecordTest, SkippedStepsDoNotSpoilTheMeans) {
  RunRecord record;
  record.AddStep(Step(1, 2.0));
  StepRecord skipped = Step(2, std::numeric_limits<double>::quiet_NaN());
  skipped.skipped = true;
  record.AddStep(skipped);
  record.EndEpoch(1, /*is_whole=*/true, 10, 1);
  const auto summary = record.Summary(1, 2);
  EXPECT_DOUBLE_EQ(summary["train_loss"], 2.0);
  EXPECT_EQ(summary["skipped_steps"], 1);
  EXPECT_EQ(summary["steps"], 2);
}

TEST(RunRecordTest, StateSurvivesACheckpointExactly) {
  RunRecord record;
  record.AddStep(Step(1, 1.0 / 3));
  record.EndEpoch(1, /*is_whole=*/true, 100.0 / 7, std::numeric_limits<double>::quiet_NaN());
  record.AddStep(Step(2, 2.0 / 3));
  record.AddOverhead(0.1, 0.2);
  RunRecord copy;
  copy.LoadState(nlohmann::json::parse(record.SaveState().dump()));
  EXPECT_EQ(copy.SaveState(), record.SaveState());
  copy.AddStep(Step(3, 0.1));
  record.AddStep(Step(3, 0.1));
  EXPECT_EQ(copy.SaveState(), record.SaveState());
}

TEST(RunRecordTest, StateSurvivesLossesThatAreNotKnown) {
  RunRecord record;  // as of replayed steps
  record.AddStep(Step(1, std::numeric_limits<double>::quiet_NaN()));
  RunRecord copy;
  copy.LoadState(nlohmann::json::parse(record.SaveState().dump()));
  EXPECT_EQ(copy.SaveState(), record.SaveState());
  EXPECT_TRUE(copy.Summary(1, 2)["train_loss"].is_null());
}

TEST(RunRecordTest, ALongerRunGoesOnWithItsLastEpoch) {
  RunRecord record;
  record.AddStep(Step(1, 4.0));
  record.EndEpoch(1, /*is_whole=*/true, 50, 1);
  record.AddStep(Step(2, 2.0));
  record.EndEpoch(2, /*is_whole=*/false, 60, 1);
  EXPECT_DOUBLE_EQ(record.Summary(1, 2)["epochs"][1]["train_loss"], 2.0);
  RunRecord longer;
  longer.LoadState(nlohmann::json::parse(record.SaveState().dump()));
  longer.AddStep(Step(3, 1.0));
  longer.EndEpoch(2, /*is_whole=*/true, 70, 1);
  const auto summary = longer.Summary(1, 2);
  ASSERT_EQ(summary["epochs"].size(), 2u);
  EXPECT_EQ(summary["epochs"][1]["steps"], 2);
  EXPECT_DOUBLE_EQ(summary["epochs"][1]["train_loss"], 1.5);
  EXPECT_DOUBLE_EQ(summary["epochs"][1]["test_accuracy"], 70);
  EXPECT_EQ(longer.epoch().steps, 0);
}

TEST(RunRecordTest, AResumedLogEndsBeforeALineThatHasNoStep) {
  const auto file = std::filesystem::temp_directory_path() /
                    ("eq_metrics_odd_" + std::to_string(getpid()) + ".jsonl");
  for (const char* odd : {"{}", "{\"step\":\"2\"}", "{\"step\":2.5}", "[2]"}) {
    std::ofstream(file) << "{\"step\":1}\n" << odd << "\n{\"step\":3}\n";
    ASSERT_TRUE(MetricsLog::Open(file, 3).ok());
    std::ifstream in(file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "{\"step\":1}\n") << odd;
  }
  std::filesystem::remove(file);
}

TEST(RunRecordTest, AResumedLogCutsOffWhatWasLost) {
  const auto file = std::filesystem::temp_directory_path() /
                    ("eq_metrics_" + std::to_string(getpid()) + ".jsonl");
  {
    auto log = MetricsLog::Open(file, 0);
    ASSERT_TRUE(log.ok());
    for (int64_t step = 1; step <= 5; ++step) ASSERT_TRUE(log->Write(Step(step, 1)).ok());
  }
  std::ofstream(file, std::ios::app) << "{\"step\":6,\"lo";  // killed while it wrote
  {
    auto log = MetricsLog::Open(file, 3);
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE(log->Write(Step(4, 2)).ok());
  }
  std::ifstream in(file);
  std::vector<int64_t> steps;
  for (std::string line; std::getline(in, line);) {
    steps.push_back(nlohmann::json::parse(line).at("step"));
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace elastiquant
