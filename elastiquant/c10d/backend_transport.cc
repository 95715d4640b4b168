#include "elastiquant/c10d/backend_transport.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "elastiquant/c10d/torch_error.h"

namespace elastiquant {
namespace {

// Waits end by the message, a broken connection, or Abort: a slow link may need long.
constexpr std::chrono::hours kForever{24 * 365};

at::Tensor Wrap(std::span<const uint8_t> bytes) {
  // c10d takes mutable tensors only; a send reads.
  return at::from_blob(const_cast<uint8_t*>(bytes.data()), {static_cast<int64_t>(bytes.size())},
                       at::kByte);
}

// Calls a function at a deadline, unless it is destroyed before.
class Alarm {
 public:
  Alarm(Deadline deadline, std::function<void()> ring)
      : thread_([this, deadline, ring = std::move(ring)] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_until(lock, deadline, [this] { return off_; })) ring();
        }) {}
  ~Alarm() {
    {
      const std::lock_guard lock(mutex_);
      off_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool off_ = false;
  std::thread thread_;  // started when the rest is there
};

class WorkPosting final : public Posting {
 public:
  WorkPosting(c10::intrusive_ptr<c10d::Work> work, int peer)
      : work_(std::move(work)), peer_(peer) {}

  // Gloo closes its connections when one of its own waits is over time, so a wait is aborted
  // instead, which leaves the message posted. One that is aborted before it begins does not see
  // what has already come: hence the millisecond.
  Result<bool> WaitUntil(Deadline deadline) override {
    std::optional<Alarm> alarm;
    if (deadline != kNoDeadline) {
      alarm.emplace(std::max(deadline, Deadline::clock::now() + std::chrono::milliseconds(1)),
                    [this] { work_->abort(); });
    }
    try {
      if (work_->wait(kForever)) return true;
    } catch (const std::exception& e) {
      return Unavailable(Words(e));
    }
    if (aborted_ || !alarm) return Unavailable("aborted");
    return false;
  }
  void Abort() override {
    aborted_ = true;
    work_->abort();
  }
  int peer() const override { return peer_ == kAnyPeer ? work_->sourceRank() : peer_; }

 private:
  const c10::intrusive_ptr<c10d::Work> work_;
  const int peer_;
  std::atomic<bool> aborted_{false};
};

class BackendTransport final : public Transport {
 public:
  explicit BackendTransport(c10::intrusive_ptr<c10d::Backend> group)
      : group_(std::move(group)) {}

  Result<std::unique_ptr<Posting>> Send(int to, uint32_t tag,
                                        std::span<const uint8_t> bytes) override {
    return Post(to, bytes, [&](std::vector<at::Tensor>& tensors) {
      return group_->send(tensors, to, static_cast<int>(tag));
    });
  }
  Result<std::unique_ptr<Posting>> Receive(int from, uint32_t tag,
                                           std::span<uint8_t> bytes) override {
    return Post(from, bytes, [&](std::vector<at::Tensor>& tensors) {
      return from == kAnyPeer ? group_->recvAnysource(tensors, static_cast<int>(tag))
                              : group_->recv(tensors, from, static_cast<int>(tag));
    });
  }

 private:
  static Result<std::unique_ptr<Posting>> Post(int peer, std::span<const uint8_t> bytes,
                                               const auto& post) {
    try {
      std::vector<at::Tensor> tensors{Wrap(bytes)};
      return std::unique_ptr<Posting>(std::make_unique<WorkPosting>(post(tensors), peer));
    } catch (const std::exception& e) {
      return Unavailable(Words(e));
    }
  }

  c10::intrusive_ptr<c10d::Backend> group_;
};

}  // namespace

std::unique_ptr<Transport> MakeBackendTransport(c10::intrusive_ptr<c10d::Backend> gloo) {
  return std::make_unique<BackendTransport>(std::move(gloo));
}

}  // namespace elastiquant
