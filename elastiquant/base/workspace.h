// The threads and the scratch memory that encoding and decoding run on. A Workspace is made
// once and reused: after the first call of a given shape nothing is allocated any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace elastiquant {

class Workspace {
 public:
  // threads >= 1; with 1 everything runs on the calling thread.
  explicit Workspace(int threads = 1);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  int threads() const;

  // Calls fn(item, thread) for item in [0, items), thread in [0, threads()); returns when all
  // are done. Items are handed out in any order, so results must not depend on it. Not
  // reentrant: one caller at a time. What fn throws (out of memory) is thrown again here.
  void ParallelFor(size_t items, const std::function<void(size_t item, int thread)>& fn);

  // Scratch of at least `bytes`, 64-byte aligned, private to `thread`, valid until the next
  // call for that thread. Contents are unspecified.
  std::span<uint8_t> Scratch(int thread, size_t bytes);

  // Scratch that belongs to a whole message instead of a thread: 64-byte aligned, valid until
  // the next call for that slot. Calls are not for ParallelFor's threads. A codec may use
  // kCodecSlot and kCodecSlot + 1; what calls a codec (a modifier) uses kModifierSlot.
  static constexpr int kCodecSlot = 0;
  static constexpr int kModifierSlot = 2;
  std::span<uint8_t> SharedScratch(int slot, size_t bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace elastiquant
