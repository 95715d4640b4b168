#include "elastiquant/runs/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elastiquant {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Everything written to a temporary file since it was opened.
std::string Contents(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

StepRecord Step() {
  return {.step = 50,
          .epoch = 2,
          .loss = 1.25,
          .accuracy = 60,
          .seconds = {.total = 0.5},
          .bytes_up = 125000,
          .images = 128};
}

ProgressOptions Options(bool live, std::FILE* out) {
  return {.total_steps = 100, .coordinates = 250000, .world_size = 4, .live = live, .out = out};
}

TEST(ProgressTest, TheBarTellsHowFarAndHowFast) {
  std::FILE* file = std::tmpfile();
  Progress progress(Options(true, file));
  progress.Step(Step());
  const std::string text = Contents(file);
  EXPECT_THAT(text, HasSubstr("epoch 2 [##########..........] 50/100 loss 1.250 acc 60.0 %"));
  EXPECT_THAT(text, HasSubstr("256 images/s 2.00 Mbit/s 12.0x ETA 00:25"));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  std::fclose(file);
}

TEST(ProgressTest, ElsewhereThereIsALineAnEpochAndNoBar) {
  std::FILE* file = std::tmpfile();
  Progress progress(Options(false, file));
  progress.Step(Step());
  EXPECT_THAT(Contents(file), IsEmpty());
  StepTotals totals;
  totals.Add(Step());
  progress.Epoch(2, totals, 71.5);
  const std::string text = Contents(file);
  EXPECT_THAT(text, HasSubstr("epoch 2: loss 1.2500, test accuracy 71.50 %, 256 images/s"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  std::fclose(file);
}

TEST(ProgressTest, Durations) {
  EXPECT_EQ(FormatDuration(0), "00:00");
  EXPECT_EQ(FormatDuration(61.4), "01:01");
  EXPECT_EQ(FormatDuration(3723), "1:02:03");
}

}  // namespace
}  // namespace elastiquant
