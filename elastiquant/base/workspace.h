// The threads and the scratch memory that encoding and decoding run on. A Workspace is made
// once and reused: after the first call of a given shape nothing is allocated any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace elastiquant {

// Runs the loops of codecs and owns their scratch memory.
class Workspace {
 public:
  // Starts the threads. With one thread everything runs on the calling thread, and a number
  // below 1 counts as 1.
  explicit Workspace(int threads = 1);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  int threads() const;

  // Calls fn(item, thread) for each item in [0, items), with a thread in [0, threads()), and
  // returns when all calls are done. Items are handed out in any order, so results must not
  // depend on it. It is not reentrant: only one caller may use it at a time. What fn throws
  // (out of memory) is thrown again here.
  void ParallelFor(size_t items, const std::function<void(size_t item, int thread)>& fn);

  // Returns scratch memory of at least `bytes` that is private to `thread`. It is aligned to 64
  // bytes and valid until the next call for that thread. Its contents are unspecified.
  std::span<uint8_t> Scratch(int thread, size_t bytes);

  // Returns scratch memory that belongs to a whole message instead of a thread. It is aligned
  // to 64 bytes and valid until the next call for that slot. The threads of ParallelFor must
  // not call this. A codec may use kCodecSlot and kCodecSlot + 1; what calls a codec (a
  // modifier) uses kModifierSlot.
  static constexpr int kCodecSlot = 0;
  static constexpr int kModifierSlot = 2;
  std::span<uint8_t> SharedScratch(int slot, size_t bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace elastiquant
