// Codecs that each worker chooses for itself from step to step: how much it sends by `uniform`,
// `dagc-r`, `dagc-a` and `accordion`, and its bits by --bits-policy. What decides is in
// `policy`; here is what it sees in a run, and what becomes of its decisions.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/layer_reduction.h"

namespace elastiquant {

struct WorkerCodecsOptions {
  // One of the two is given: as ParseSparsity takes it, or as ParseBitPolicy does.
  std::string algorithm = "";
  std::string bits_policy = "";
  double ratio = 0;  // of the algorithm
  // The run's: of bits_policy one with a rate.
  std::shared_ptr<const Codec> codec = nullptr;
  std::vector<double> volumes = {};  // of all workers, by rank; the weights of the mean
  size_t rank = 0;
  bool two_phase = false;  // whether owners encode the mean again
  int64_t steps = 0;       // of the run
  size_t buckets = 0;      // that are compressed
};

// What is known of a step when it is over.
struct StepSeen {
  double loss = 0;
  double learning_rate = 0;
  // Whether nothing was learnt of it: it was skipped, or not compressed.
  bool is_void = false;
};

// In each step: BeginStep; for each bucket that is compressed, BeforeSent, then OnMeasured for
// its frames, if they are measured, and OnMean; and EndStep. Buckets are counted among those
// that are compressed. What workers tell each other travels as scalars beside the gradients, so
// that it is known a step later than it arises, without a message of its own. BeforeSent is
// called by one thread, OnMean and OnMeasured by others.
class WorkerCodecs {
 public:
  // Fails as the policies' parsers do.
  static Result<std::unique_ptr<WorkerCodecs>> Make(const WorkerCodecsOptions& options);
  virtual ~WorkerCodecs() = default;

  // Returns how many scalars travel for it.
  virtual size_t scalars() const = 0;
  // Returns what buckets may be sent under, for LayerReductionOptions::ladder.
  virtual std::vector<std::shared_ptr<const Codec>> Ladder() const = 0;

  // May be called before BeginStep by callers who know the L2 norm of all that this worker is
  // about to send: a decision about this step then goes by it (WorkerSparsity::Foresee).
  virtual Status Foresee(double norm) {
    (void)norm;
    return {};
  }
  // Sets the scalars: what the last step has shown this worker, and what it decided for this
  // one.
  virtual void BeginStep(std::span<float> scalars) = 0;
  // `remembered` is what the bucket's codec remembers, by field.
  virtual void BeforeSent(size_t bucket, std::span<const float> values,
                          std::span<const std::span<float>> remembered) = 0;
  virtual void OnMeasured(size_t bucket, const MeasuredMessage& message) = 0;
  virtual void OnMean(size_t bucket, std::span<const float> mean) = 0;
  // Takes the scalars' means, unless the step is void, and decides about the next step.
  virtual Status EndStep(std::span<const float> scalars, const StepSeen& seen) = 0;

  // Returns the codec of a bucket in the next step.
  virtual std::shared_ptr<const Codec> CodecOf(size_t bucket) const = 0;
  // Returns what all workers decided for the step that is over: docs/metrics.md, "decisions".
  virtual nlohmann::json Decisions() const = 0;

  // These are for checkpoints of this worker. LoadState fails with kCorruptData if `state` is
  // not what SaveState returns.
  virtual std::vector<double> SaveState() const = 0;
  virtual Status LoadState(std::span<const double> state) = 0;
};

// Makes a float of a number for other workers: one that is finite, whatever it was.
float Sendable(double value);
// Returns what each of the volumes is of their sum.
std::vector<double> SharesOf(std::span<const double> volumes);

// Made by WorkerCodecs::Make.
Result<std::unique_ptr<WorkerCodecs>> MakeSparsityCodecs(const WorkerCodecsOptions& options);
Result<std::unique_ptr<WorkerCodecs>> MakeBitCodecs(const WorkerCodecsOptions& options);

}  // namespace elastiquant
