// Collects errors from the tiles of one message, and keeps the one that stands first in it, so
// that what the user reads does not depend on the threads.
#pragma once

#include <functional>
#include <limits>
#include <mutex>
#include <utility>

#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"

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

// Calls try_item(item, thread), which returns a Status, for each item on the threads of `work`.
// Returns the error of the first item that has one.
template <typename TryItem>
Status TryParallelFor(Workspace& work, size_t items, const TryItem& try_item) {
  FirstError error;
  const auto report = [&](size_t item, int thread) {
    if (Status status = try_item(item, thread); !status.ok()) {
      error.Report(item, std::move(status));
    }
  };
  work.ParallelFor(items, std::cref(report));
  return error.status();
}

}  // namespace elastiquant
