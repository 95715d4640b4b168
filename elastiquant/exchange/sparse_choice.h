// Which of its two ways a bucket of sparse messages takes.
#pragma once

#include <cstdint>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// Every so many steps the bucket is all-gathered, and what the workers have sent is cut, summed
// and coded as a sparse scatter-reduce would have done. All have the same frames then, so they
// decide alike without a word. Both ways leave the same bits: a choice that differs from run to
// run, as after a checkpoint, changes no weight.
class SparseChoice {
 public:
  static constexpr uint64_t kPeriod = 64;

  // The way of the step that begins.
  Exchange Begin() {
    measuring_ = left_ == 0;
    if (measuring_) return Exchange::kAllGather;
    --left_;
    return way_;
  }
  bool measuring() const { return measuring_; }
  // What both would move, on all links together. If a step that measures is skipped this is not
  // called, and the next one measures.
  void Decide(uint64_t all_gather_bytes, uint64_t scatter_bytes) {
    way_ = scatter_bytes < all_gather_bytes ? Exchange::kSparseScatter : Exchange::kAllGather;
    left_ = kPeriod - 1;
  }

 private:
  Exchange way_ = Exchange::kAllGather;
  uint64_t left_ = 0;  // steps until it is measured again
  bool measuring_ = false;
};

}  // namespace elastiquant
