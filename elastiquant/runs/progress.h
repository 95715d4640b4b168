// Shows a person how a run goes: by a live bar on a terminal, and by a line an epoch elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "elastiquant/runs/run_record.h"

namespace elastiquant {

struct ProgressOptions {
  int64_t total_steps = 0;
  int64_t coordinates = 0;
  int world_size = 1;
  bool live = false;  // whether to show a bar, redrawn a few times a second
  std::FILE* out = stderr;
};

// Prints the progress of one run. TrainingRun has one.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options) : options_(options) {}

  // Takes a step into the bar, if there is one, and redraws it when it is time.
  void Step(const StepRecord& record);
  // Prints the line of an epoch. `test_accuracy` is in per cent, NaN if there was no
  // evaluation.
  void Epoch(int64_t epoch, const StepTotals& totals, double test_accuracy);
  // Prints something that is to be said apart from the bar.
  void Note(const std::string& text);
  // Returns the bar for one record, as Step draws it, without control characters.
  std::string Line(const StepRecord& record) const;

 private:
  void ClearBar();
  void Write(const std::string& text);

  ProgressOptions options_;
  double smooth_loss_ = 0;
  double smooth_accuracy_ = 0;
  double smooth_seconds_ = 0;  // of a step
  double smooth_bytes_ = 0;    // of a step, sent
  bool any_ = false;
  bool bar_shown_ = false;
  std::chrono::steady_clock::time_point drawn_{};
};

// Returns text such as "1:02:03" or "02:03".
std::string FormatDuration(double seconds);

}  // namespace elastiquant
