// A thread that ends steps. DDP goes on with backward meanwhile, or waits for its futures.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace elastiquant {

// Calls a function on a thread of its own, once for each Start.
class StepFinisher {
 public:
  explicit StepFinisher(std::function<void()> finish)
      : finish_(std::move(finish)), thread_([this] { Loop(); }) {}
  ~StepFinisher() { Stop(); }
  StepFinisher(const StepFinisher&) = delete;
  StepFinisher& operator=(const StepFinisher&) = delete;

  // Begins a call. The one before must be over.
  void Start() {
    const std::lock_guard lock(mutex_);
    is_due_ = true;
    changed_.notify_all();
  }
  // Waits for the call under way, and ends the thread. No Start may follow.
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Loop() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || is_due_; });
        if (!is_due_) return;
        is_due_ = false;
      }
      finish_();
    }
  }

  const std::function<void()> finish_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_due_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace elastiquant
