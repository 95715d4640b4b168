// Which sparse codec a worker sends its update under in each round: the algorithms `uniform`,
// `dagc-r`, `dagc-a` and `accordion`, all with error feedback. The runners of training ask it
// for a spec before each round, and tell it after the round what the worker saw.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/policy/accordion.h"
#include "elastiquant/policy/ratios.h"
#include "elastiquant/policy/threshold_tracker.h"

namespace elastiquant::policy {

enum class SparsityKind : uint8_t { kUniform, kDagcR, kDagcA, kAccordion };

// Which algorithm, as ParseSparsity reads it.
struct Sparsity {
  SparsityKind kind = SparsityKind::kUniform;
  RatioRule rule = RatioRule::kMonotone;  // of dagc-r
  double exponent = kDagcExponent;        // of dagc-r and dagc-a
  // Of accordion: 0 for what --ratio gives, which is a tenth of it and it.
  double least = 0, most = 0;
  double change = AccordionOptions{}.threshold;
  std::string bits = "16";  // of a value that is sent: 32, 16, 8, 4 or exact
};

// Parses NAME[:KEY=VALUE,...]: "uniform", "dagc-r:rule=published", "dagc-a:exponent=0.5" or
// "accordion:least=0.01,most=0.1,change=0.5"; all take "bits" as codec topk does. Fails with
// kInvalidArgument, which lists what is valid.
Result<Sparsity> ParseSparsity(std::string_view text);

// Returns the codec of a worker that sends a share of its coordinates, in (0, 1], such as
// "topk:ratio=0.1,bits=16|ef".
std::string TopKOf(const Sparsity& sparsity, double ratio);

// What a worker saw of its own round. All of it is before the weights of the mean.
struct OwnRound {
  double norm = 0;  // L2 norm of its update, without what error feedback remembers
  // The share of the coordinates of update and memory that reached its threshold, in [0, 1].
  double sent = 0;
  // The magnitude that a share of ratio() of these coordinates exceed; only needed while
  // needs_quantile().
  double quantile = 0;
};

// What the workers tell each other: plain means over workers, without weights. It may be of an
// earlier round than the one before, but must be the same on all workers. NaN: not known yet.
struct AgreedRound {
  double sent = std::numeric_limits<double>::quiet_NaN();
  double log_threshold = std::numeric_limits<double>::quiet_NaN();
};

// The state machine of one worker. Not thread-safe.
class WorkerSparsity {
 public:
  // `ratio` in (0, 1] is the mean share of coordinates that is sent; of accordion the largest.
  // `volumes` says how much data each worker has, and `worker` which one this is. Fails as
  // WorkerRatios does, or if MakeCodec refuses a spec that may occur.
  static Result<std::unique_ptr<WorkerSparsity>> Make(const Sparsity& sparsity, double ratio,
                                                      std::span<const double> volumes,
                                                      size_t worker);

  // Returns the spec of the codec under which this worker sends its next update, such as
  // "topk:ratio=0.17905,bits=16|ef".
  std::string codec() const;
  // Returns specs among which every worker's codec is, in every round; under dagc-a the value
  // of the threshold is another one, but no frame is longer for it. It is the same on all
  // workers, for GradientBucket::ladder.
  const std::vector<std::string>& ladder() const { return ladder_; }

  // Returns the mean ratio that is asked for.
  double ratio() const { return ratio_; }
  // Returns the share of its coordinates that this worker sends next, unless by a threshold.
  double own_ratio() const { return own_ratio_; }
  // Returns the threshold of magnitude that this worker's coordinates must reach, under dagc-a
  // once there is one.
  std::optional<double> threshold() const;
  // Whether this worker's rounds must tell their quantile.
  bool needs_quantile() const;

  // Decides about the round that begins by the L2 norm of the update that is about to be sent,
  // for callers who know it before anything of it is sent. Only accordion makes use of it,
  // which without it goes by the round before.
  void Foresee(double norm);
  // Returns what this worker contributes to the means of AgreedRound.
  AgreedRound Report(const OwnRound& own) const;
  // Ends a round. Rounds in which nothing was sent, because a worker could not encode, must not
  // be told.
  void Next(const OwnRound& own, const AgreedRound& agreed);

  // LoadState fails with kCorruptData, and changes nothing, if `state` is not what SaveState
  // returns of the same algorithm.
  std::vector<double> SaveState() const;
  Status LoadState(std::span<const double> state);

 private:
  WorkerSparsity(const Sparsity& sparsity, double ratio) : sparsity_(sparsity), ratio_(ratio) {}

  std::string Threshold(double value) const;
  Status MakeLadder(std::span<const double> ratios);

  const Sparsity sparsity_;
  const double ratio_;
  double own_ratio_ = 0;           // of top-k in the next round
  double relative_threshold_ = 1;  // of this worker, to the common one
  Accordion accordion_;
  bool has_foreseen_ = false;  // whether accordion has decided by this round's own norm
  std::optional<ThresholdTracker> tracker_;  // of dagc-a, from when there is an estimate
  std::vector<std::string> ladder_;
};

}  // namespace elastiquant::policy
