// Collects errors from the tiles of one message, and keeps the one that stands first in it, so
// that what the user reads does not depend on the threads.
#pragma once

#include <limits>
#include <mutex>
#include <utility>

#include "elastiquant/base/status.h"

namespace elastiquant {

class FirstError {
 public:
  void Report(size_t place, Status status) {
    const std::lock_guard lock(mutex_);
    if (place >= place_) return;
    place_ = place;
    status_ = std::move(status);
  }
  // Must not be called while other threads report.
  const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  size_t place_ = std::numeric_limits<size_t>::max();
  Status status_;
};

}  // namespace elastiquant
