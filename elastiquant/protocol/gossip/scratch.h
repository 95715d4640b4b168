// The threads of a worker under gossip, and vectors of its weights' length that it borrows for
// a moment. To allocate these anew for each message would take longer than to decode the
// message, because the system clears new memory page by page.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "elastiquant/base/workspace.h"

namespace elastiquant {

class GossipScratch {
 public:
  GossipScratch(int threads, size_t elements) : work_(threads), elements_(elements) {}

  Workspace& work() { return work_; }

  // Returns a vector of `elements` values, which are unspecified.
  std::vector<float> Take();
  // Keeps a vector for the next that is taken.
  void GiveBack(std::vector<float> vector);

  // Calls fn(begin, size) for all blocks of the elements, on all threads. A block is so short
  // that what one loop over it reads is still in the core's cache for the next.
  static constexpr size_t kBlock = 2048;
  size_t blocks() const { return (elements_ + kBlock - 1) / kBlock; }
  void ForEachBlock(const std::function<void(size_t begin, size_t size)>& fn);

 private:
  Workspace work_;
  size_t elements_;
  std::vector<std::vector<float>> spare_;
};

}  // namespace elastiquant
