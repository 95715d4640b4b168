// What callbacks of others hold of an engine that may have ended when they are called.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "elastiquant/base/status.h"

namespace elastiquant {

class DdpEngine;

class EngineTies {
 public:
  explicit EngineTies(DdpEngine* engine) : engine_(engine) {}

  // Calls fn(engine), unless that has ended, which waits for it.
  template <typename Fn>
  void With(const Fn& fn) {
    const std::lock_guard lock(engine_mutex_);
    if (engine_ != nullptr) fn(*engine_);
  }
  void Cut() {
    const std::lock_guard lock(engine_mutex_);
    engine_ = nullptr;
  }

  // A worker is lost, and which.
  void SetVerdict(const Status& verdict) {
    const std::lock_guard lock(verdict_mutex_);
    verdict_ = verdict;
    told_.notify_all();
  }
  // OK while none is known to be lost; waits so long for another answer.
  Status Verdict(std::chrono::milliseconds patience = {}) {
    std::unique_lock lock(verdict_mutex_);
    told_.wait_for(lock, patience, [&] { return !verdict_.ok(); });
    return verdict_;
  }

 private:
  std::mutex engine_mutex_;
  DdpEngine* engine_;
  std::mutex verdict_mutex_;
  std::condition_variable told_;
  Status verdict_;
};

}  // namespace elastiquant
