// What a person sees of a run: a live bar on a terminal, a line an epoch elsewhere.
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
  bool live = false;  // a bar, redrawn a few times a second
  std::FILE* out = stderr;
};

class Progress {
 public:
  explicit Progress(const ProgressOptions& options) : options_(options) {}

  void Step(const StepRecord& record);
  void Epoch(int64_t epoch, const StepTotals& totals, double test_accuracy);
  // Something to be said apart from the bar.
  void Note(const std::string& text);
  // The bar for one record; the first line of `Step`'s output, without control characters.
  std::string Line(const StepRecord& record) const;

 private:
  void ClearBar();

  ProgressOptions options_;
  double smooth_loss_ = 0;
  double smooth_accuracy_ = 0;
  double smooth_seconds_ = 0;  // a step
  double smooth_bytes_ = 0;    // a step, up
  bool any_ = false;
  bool bar_shown_ = false;
  std::chrono::steady_clock::time_point drawn_{};
};

// "1:02:03" or "02:03".
std::string FormatDuration(double seconds);

}  // namespace elastiquant
