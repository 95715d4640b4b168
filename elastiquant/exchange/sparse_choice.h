// The strategy of kSparse: a bucket of sparse messages takes whichever of its two ways,
// all-gather or sparse scatter, has been seen to move fewer bytes.
#pragma once

#include <cstdint>

#include "elastiquant/exchange/all_gather.h"
#include "elastiquant/exchange/sparse_scatter.h"

namespace elastiquant {

// Every kPeriod steps the bucket is all-gathered, and what the workers have sent is cut, summed
// and coded as a sparse scatter-reduce would have done. All have the same frames then, so they
// decide alike without a word. Both ways leave the same bits: a choice that differs from run to
// run, as after a checkpoint, changes no weight.
class SparseChoice final : public AllGather {
 public:
  static constexpr uint64_t kPeriod = 64;

  SparseChoice(ReduceShared& shared, BucketState& state);

  void BeginStep() override;
  size_t Room(int rank, Mail mail) const override {
    return scatters_ ? scatter_.Room(rank, mail) : AllGather::Room(rank, mail);
  }
  Status Encode() override { return scatters_ ? scatter_.Encode() : AllGather::Encode(); }
  Status Reduce() override { return scatters_ ? scatter_.Reduce() : AllGather::Reduce(); }
  Status Gather() override { return scatters_ ? scatter_.Gather() : Status(); }

 protected:
  // In the steps that are for it, compares what the frames have cost with what their parts and
  // sums would have. If such a step is skipped this is not called, and the next step compares.
  Status Look(std::span<const Frame> frames, std::span<const float> sum) override;

 private:
  SparseScatter scatter_;
  bool scatter_is_less_ = false;
  uint64_t left_ = 0;      // steps until the ways are compared again
  bool scatters_ = false;  // whether this step takes the sparse scatter
  bool compares_ = false;  // whether this step compares the ways
};

}  // namespace elastiquant
