#include "elastiquant/data/train_order.h"

#include <cstddef>
#include <numeric>

#include "elastiquant/data/shuffle.h"

namespace elastiquant {
namespace {

// Names of the random streams made from a loader's seed.
constexpr uint64_t kOrderStream = 0;
constexpr uint64_t kAugmentStream = 1;

PlannedSample PlanSample(uint64_t seed, int64_t pass, int64_t index) {
  return {index, pass, AugmentKey(seed, pass, index)};
}

// Each epoch is a permutation of the whole split, of which a rank has a part of each step.
class WholeOrder final : public TrainOrder {
 public:
  WholeOrder(int64_t samples, const LoaderOptions& options, LoaderPosition start)
      : batch_(options.batch),
        rank_(options.rank),
        world_size_(options.world_size),
        seed_(options.seed),
        permutation_(static_cast<size_t>(samples)),
        next_(start) {}

  std::vector<PlannedSample> NextBatch() override {
    if (shuffled_epoch_ != next_.epoch) ShuffleEpoch();
    std::vector<PlannedSample> samples;
    const int64_t first = (next_.step * world_size_ + rank_) * batch_;
    for (int64_t i = first; i < first + batch_; ++i) {
      samples.push_back(PlanSample(seed_, next_.epoch, permutation_[static_cast<size_t>(i)]));
    }
    const int64_t steps = static_cast<int64_t>(permutation_.size()) / (batch_ * world_size_);
    if (++next_.step == steps) next_ = {next_.epoch + 1, 0};
    return samples;
  }

 private:
  // From the identity, so that an epoch does not depend on the one before.
  void ShuffleEpoch() {
    std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
    Shuffle(DeriveKey(seed_, static_cast<uint64_t>(next_.epoch), 0, kOrderStream),
            permutation_);
    shuffled_epoch_ = next_.epoch;
  }

  const int64_t batch_, rank_, world_size_;
  const uint64_t seed_;
  std::vector<int64_t> permutation_;
  LoaderPosition next_;
  int64_t shuffled_epoch_ = -1;
};

// One pass over the worker's own share after the other, whatever epochs there are.
class ShareOrder final : public TrainOrder {
 public:
  ShareOrder(const LoaderOptions& options, LoaderPosition start)
      : batch_(options.batch),
        stream_(static_cast<uint64_t>(options.rank) + 1),  // 0 is the order of the whole split
        seed_(options.seed),
        share_(options.share),
        next_((start.epoch * StepsPerEpoch(options.dealt, options) + start.step) * batch_) {}

  std::vector<PlannedSample> NextBatch() override {
    const auto size = static_cast<int64_t>(share_.size());
    std::vector<PlannedSample> samples;
    for (const int64_t end = next_ + batch_; next_ < end; ++next_) {
      const int64_t pass = next_ / size;
      if (shuffled_pass_ != pass) ShufflePass(pass);
      samples.push_back(
          PlanSample(seed_, pass, permutation_[static_cast<size_t>(next_ % size)]));
    }
    return samples;
  }

 private:
  // From the share as it was given, so that a pass does not depend on the one before.
  void ShufflePass(int64_t pass) {
    permutation_ = share_;
    Shuffle(DeriveKey(seed_, static_cast<uint64_t>(pass), stream_, kOrderStream), permutation_);
    shuffled_pass_ = pass;
  }

  const int64_t batch_;
  const uint64_t stream_, seed_;
  const std::vector<int64_t> share_;
  std::vector<int64_t> permutation_;
  int64_t next_;  // samples read since the first step of the run
  int64_t shuffled_pass_ = -1;
};

}  // namespace

StreamKey AugmentKey(uint64_t seed, int64_t pass, int64_t index) {
  return DeriveKey(seed, static_cast<uint64_t>(pass), static_cast<uint64_t>(index),
                   kAugmentStream);
}

std::unique_ptr<TrainOrder> TrainOrder::Make(int64_t samples, const LoaderOptions& options,
                                             LoaderPosition start) {
  if (options.share.empty()) return std::make_unique<WholeOrder>(samples, options, start);
  return std::make_unique<ShareOrder>(options, start);
}

}  // namespace elastiquant
