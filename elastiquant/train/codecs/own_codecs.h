// A reduction whose buckets travel under codecs that this worker chooses for itself
// (worker_codecs.h): what the policies are told of each bucket, and what they decide.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/layers/layer_reduction.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/runs/checkpoint.h"
#include "elastiquant/train/codecs/worker_codecs.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// In each round: BeginRound before the scalars are sent, BeforeSent for each bucket, and
// EndRound when all means have come. Not thread-safe, but what AddTo adds may be called by the
// reduction's threads.
class OwnCodecs {
 public:
  // Returns null if the run's options leave nothing to choose. `weights` are
  // RunnerPlace::weights. `plan` needs no scalars yet;
  // `rounds` is how many the run will have. Fails as WorkerCodecs::Make does.
  static Result<std::unique_ptr<OwnCodecs>> Make(const TrainOptions& options,
                                                 const Communicator& comm,
                                                 const std::vector<double>& weights,
                                                 const BucketPlan& plan, int64_t rounds);

  // Returns how many scalars a plan must have for it.
  size_t scalars() const { return codecs_->scalars(); }
  // Has the reduction's threads tell of means and of measured messages. `values` returns a
  // bucket's values. Must be called before the reduction is made, which this object must
  // outlive.
  void AddTo(LayerReductionOptions* options,
             std::function<std::span<const float>(size_t bucket)> values);
  // Makes the buckets travel under what was decided.
  Status UseIn(LayerReduction* layers) const;

  // For callers whose buckets hold all that is about to be sent before BeginRound is called
  // (WorkerCodecs::Foresee).
  Status Foresee(LayerReduction* layers);
  // Sets the scalars.
  void BeginRound(std::span<float> scalars) { codecs_->BeginStep(scalars); }
  // `remembered` is what the bucket's codec remembers (LayerReduction::Remembered).
  void BeforeSent(size_t bucket, std::span<const float> values,
                  std::span<const std::span<float>> remembered);
  // Takes the scalars' means and decides about the next round, whose codecs `layers` then uses.
  // Returns what all workers decided for this one, or null if it is void.
  Result<nlohmann::json> EndRound(std::span<const float> scalars, const StepSeen& seen,
                                  LayerReduction* layers);

  // Returns what the decisions are about, as Runner::Policy does.
  nlohmann::json Policy() const { return {{"groups", groups_}}; }

  // Load fails with kCorruptData if the checkpoint has not what Save adds.
  void Save(Checkpoint* checkpoint) const;
  Status Load(const Checkpoint& checkpoint, LayerReduction* layers);

 private:
  OwnCodecs() = default;
  bool is_own(size_t bucket) const {
    return bucket < places_.size() && places_[bucket] != kExact;
  }

  static constexpr size_t kExact = static_cast<size_t>(-1);

  std::unique_ptr<WorkerCodecs> codecs_;
  std::vector<size_t> places_;   // by bucket: its number among the compressed ones, or kExact
  std::vector<size_t> buckets_;  // by that number: the bucket
  std::vector<std::string> groups_;
  std::function<std::span<const float>(size_t bucket)> values_;
};

}  // namespace elastiquant
