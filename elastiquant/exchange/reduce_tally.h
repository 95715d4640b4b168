// The counts of a reduction, to which each stage adds on its own thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/exchange/skip_notice.h"

namespace elastiquant {

// Thread-safe.
class ReduceTally {
 public:
  void AddSeconds(double ReducerStats::*field, const Stopwatch& watch) {
    const double seconds = watch.Seconds();
    std::lock_guard lock(mutex_);
    stats_.*field += seconds;
  }
  void AddCoordinates(uint64_t coordinates) {
    std::lock_guard lock(mutex_);
    stats_.coordinates += coordinates;
  }
  // `metric` is that of the bucket: GradientReducer::MarkReady.
  void AddError(double squared_error, double squared_norm, uint16_t metric) {
    std::lock_guard lock(mutex_);
    stats_.squared_error += squared_error;
    stats_.squared_norm += squared_norm;
    if (metric == 0) return;
    stats_.squared_error_in_metric += squared_error;
    stats_.squared_norm_in_metric += squared_norm;
  }
  // Notes a reason to skip the step. Of several reasons the first in SkipNotice's order stands,
  // on every worker.
  void Skip(const SkipNotice& notice) {
    std::lock_guard lock(mutex_);
    if (!skip_ || notice < *skip_) skip_ = notice;
  }

  // These return what has been counted or noted since the last call, and forget it.
  ReducerStats TakeStats() {
    std::lock_guard lock(mutex_);
    return std::exchange(stats_, {});
  }
  std::optional<SkipNotice> TakeSkip() {
    std::lock_guard lock(mutex_);
    return std::exchange(skip_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  ReducerStats stats_;
  std::optional<SkipNotice> skip_;
};

}  // namespace elastiquant
