#include "elastiquant/base/workspace.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace elastiquant {
namespace {

constexpr std::align_val_t kAlign{64};

}  // namespace

struct Workspace::Impl {
  struct AlignedDelete {
    void operator()(uint8_t* p) const { ::operator delete(p, kAlign); }
  };

  struct ScratchBuffer {
    std::span<uint8_t> AtLeast(size_t bytes) {
      if (size < bytes) {
        data.reset(static_cast<uint8_t*>(::operator new(bytes, kAlign)));
        size = bytes;
      }
      return {data.get(), size};
    }

    std::unique_ptr<uint8_t, AlignedDelete> data;
    size_t size = 0;
  };

  explicit Impl(int threads) : scratch(static_cast<size_t>(threads)) {
    try {
      for (int t = 1; t < threads; ++t) helpers.emplace_back([this, t] { Loop(t); });
    } catch (...) {  // the system has no more threads: those that run must end first
      Stop();
      throw;
    }
  }
  ~Impl() { Stop(); }

  void Stop() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    start.notify_all();
    for (std::thread& helper : helpers) helper.join();
  }

  void Loop(int thread) {
    uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex);
        start.wait(lock, [&] { return stop || round != seen; });
        if (stop) return;
        seen = round;
      }
      Work(thread);
      std::lock_guard lock(mutex);
      if (--busy == 0) done.notify_one();
    }
  }
  void Work(int thread) {
    try {
      for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
        (*fn)(i, thread);
      }
    } catch (...) {  // out of memory: an exception may not leave a helper thread
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  std::vector<ScratchBuffer> scratch;
  std::array<ScratchBuffer, kModifierSlot + 1> shared;
  std::vector<std::thread> helpers;
  std::mutex mutex;
  std::condition_variable start, done;
  uint64_t round = 0;
  size_t busy = 0;
  bool stop = false;
  std::exception_ptr error;
  const std::function<void(size_t, int)>* fn = nullptr;
  size_t items = 0;
  std::atomic<size_t> next{0};
};

Workspace::Workspace(int threads) : impl_(std::make_unique<Impl>(threads < 1 ? 1 : threads)) {}
Workspace::~Workspace() = default;

int Workspace::threads() const { return static_cast<int>(impl_->scratch.size()); }

void Workspace::ParallelFor(size_t items, const std::function<void(size_t, int)>& fn) {
  Impl& impl = *impl_;
  // Waking threads costs more than one item is worth.
  if (impl.helpers.empty() || items < 2) {
    for (size_t i = 0; i < items; ++i) fn(i, 0);
    return;
  }
  {
    std::lock_guard lock(impl.mutex);
    impl.fn = &fn;
    impl.items = items;
    impl.next.store(0, std::memory_order_relaxed);
    impl.busy = impl.helpers.size();
    ++impl.round;
  }
  impl.start.notify_all();
  impl.Work(0);
  std::unique_lock lock(impl.mutex);
  impl.done.wait(lock, [&] { return impl.busy == 0; });
  if (impl.error) std::rethrow_exception(std::exchange(impl.error, nullptr));
}

std::span<uint8_t> Workspace::Scratch(int thread, size_t bytes) {
  return impl_->scratch[static_cast<size_t>(thread)].AtLeast(bytes);
}

std::span<uint8_t> Workspace::SharedScratch(int slot, size_t bytes) {
  return impl_->shared[static_cast<size_t>(slot)].AtLeast(bytes);
}

}  // namespace elastiquant
