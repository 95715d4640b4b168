// Callbacks that others hold keep these ties to an engine, which may have ended when they are
// called.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Thread-safe.
class EngineTies {
 public:
  // Calls fn(), unless the engine has ended. If it is ending, its end waits for the call.
  template <typename Fn>
  void With(const Fn& fn) {
    const std::lock_guard lock(engine_mutex_);
    if (!is_cut_) fn();
  }
  // Says that the engine ends: waits for calls under way, and prevents others.
  void Cut() {
    const std::lock_guard lock(engine_mutex_);
    is_cut_ = true;
  }

  // Takes the error that says which worker is lost.
  void SetVerdict(const Status& verdict) {
    const std::lock_guard lock(verdict_mutex_);
    verdict_ = verdict;
    told_.notify_all();
  }
  // Returns the error that says which worker is lost, or OK while none is known to be. Waits
  // for an error for as long as `patience`.
  Status Verdict(std::chrono::milliseconds patience = {}) {
    std::unique_lock lock(verdict_mutex_);
    told_.wait_for(lock, patience, [&] { return !verdict_.ok(); });
    return verdict_;
  }

 private:
  std::mutex engine_mutex_;
  bool is_cut_ = false;
  std::mutex verdict_mutex_;
  std::condition_variable told_;
  Status verdict_;
};

}  // namespace elastiquant
