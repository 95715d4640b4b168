#include "elastiquant/protocol/gossip/scratch.h"

#include <algorithm>
#include <utility>

namespace elastiquant {

std::vector<float> GossipScratch::Take() {
  if (spare_.empty()) return std::vector<float>(elements_);
  std::vector<float> vector = std::move(spare_.back());
  spare_.pop_back();
  return vector;
}

void GossipScratch::GiveBack(std::vector<float> vector) { spare_.push_back(std::move(vector)); }

void GossipScratch::ForEachBlock(const std::function<void(size_t begin, size_t size)>& fn) {
  work_.ParallelFor(blocks(), [&](size_t block, int /*thread*/) {
    const size_t begin = block * kBlock;
    fn(begin, std::min(kBlock, elements_ - begin));
  });
}

}  // namespace elastiquant
