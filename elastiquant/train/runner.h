// One way of training, on one worker: what a step is, what the workers exchange for it, and
// what a checkpoint must have of it. TrainingRun has one, by TrainOptions::algorithm.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/data/dataset.h"
#include "elastiquant/data/loader.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/certificate.h"
#include "elastiquant/layers/state_identity.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/runs/checkpoint.h"
#include "elastiquant/runs/run_record.h"
#include "elastiquant/train/fault.h"
#include "elastiquant/train/gradient_dump.h"
#include "elastiquant/train/replica.h"
#include "elastiquant/train/round_runner.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// What came of one step.
struct StepResult {
  StepRecord record;        // complete but for the epoch
  StepOutcome outcome;      // if skipped, no mean has moved the weights
  bool ends_round = false;  // whether all workers are between two rounds now
};

// Where a run trains, and on what. All of it must outlive the runner.
struct RunnerPlace {
  Communicator* comm = nullptr;
  Replica* replica = nullptr;
  // What the loader reads, of whose training split this worker may have a share only.
  std::shared_ptr<const Dataset> dataset;
  // Of the run. The last step brings together what is under way, or on one worker alone.
  int64_t total_steps = 0;
  // ReducerOptions::weights: what each worker counts for in means, loss and accuracy too.
  std::vector<double> weights = {};
  // This worker's name and the number of names, which are its rank and the communicator's world
  // until the group changes.
  int worker = 0;
  int workers = 1;
  LoaderOptions loading = {};  // of the run's loader
  bool is_newcomer = false;    // whether the others of the group know the run already
  bool may_lose = false;       // whether it goes on without workers that are lost
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Collective. Runs step `step`, counted from 0. If `inspect` is set, looks for the layer in
  // which a NaN or infinity arises first, should there be one.
  virtual Result<StepResult> Run(int64_t step, double learning_rate, bool inspect,
                                 TrainLoader& loader) = 0;

  // Must be called before the steps of an epoch, counted from 1, and after resuming within it,
  // because some codecs send more in the first epochs.
  virtual Status BeginEpoch(int64_t epoch) {
    (void)epoch;
    return {};
  }
  // Collective, if SharesSteps. BeginStretch: the workers are about to make steps, however many
  // each, until they meet again. EndStretches: they have made their last, and what is under way
  // comes together, as it does in the last step of other runs.
  virtual Status BeginStretch() { return {}; }
  virtual Status EndStretches() { return {}; }
  // AdaptedCodec returns the spec of an adaptive codec as it has become, which must be given to
  // UseCodec on resuming; it is empty if the run's codec does not adapt.
  virtual std::string AdaptedCodec() const { return ""; }
  virtual Status UseCodec(const std::string& spec) {
    return InvalidArgument("codec '" + spec + "' does not adapt here");
  }

  // Between ShowShared and ShowOwn the replica is the model that all workers have together:
  // that of evaluations, checkpoints and the summary. Elsewhere it may be this worker's own.
  virtual void ShowShared() {}
  virtual void ShowOwn() {}
  // Collective, while the shared model is shown: makes the running statistics of batch
  // normalisation those of the shared model.
  virtual Status ShareBuffers() = 0;
  // Whether the shared model is on all workers after each step. If not, ShareBuffers brings it
  // there.
  virtual bool has_replicas() const { return true; }
  // Collective, between two steps. Where workers have copies of what others have shown them,
  // returns the edges (sender > receiver) on which a copy is not to the bit what its sender
  // has, the same on all; empty if there is none.
  virtual Result<std::string> OddCopies() { return std::string(); }
  // Whether each worker trains a model of its own, of which the shared one is the mean.
  virtual bool has_own_models() const { return false; }
  // The replica, as it is now on all workers, is what the run starts from.
  virtual void StartFromReplica() {}

  // Returns whose memory it is.
  virtual StateIdentity Identity() const = 0;
  // These save and load what this worker alone has. Must be called between steps. SaveMemory
  // finds this worker's own model in the replica. LoadMemory finds the checkpoint's shared
  // model there, and leaves this worker's own.
  virtual bool remembers() const = 0;
  virtual Status SaveMemory(Checkpoint* checkpoint) = 0;
  virtual Status LoadMemory(const Checkpoint& checkpoint) = 0;

  // Fills in what a record says of messages, by what was sent and received since the last
  // record. Runners whose messages travel between steps, too, have it: SaveMemory waits for
  // those that are under way, and afterwards no step has them.
  virtual void TakeCommunication(StepRecord* record) { (void)record; }

  // Makes those faults happen that the run was asked for at this moment, for tests.
  virtual void Strike(FaultMoment moment, int64_t step) = 0;
  // Returns the certificate, which the messages of measured steps go into.
  virtual Certificate& certificate() = 0;
  // Collective. Returns, after a skipped step with `inspect`, in which layer the NaN or
  // infinity was, in words, or `otherwise` if no worker has found out.
  virtual Result<std::string> NonFiniteLayer(const std::string& otherwise) = 0;

  // The exchanges that this worker has made since the runner was made, and how often it has
  // sent values in them: a lazy one may pass.
  struct Counts {
    uint64_t rounds = 0;
    uint64_t uploads = 0;
  };
  virtual Counts counts() const = 0;

  // Returns what the decisions in the metrics are about, for the summary ("policy" in
  // docs/metrics.md), or null if there are none.
  virtual nlohmann::json Policy() const { return nullptr; }
  // Collective: returns what the messages of all workers were made of since the runner was
  // made, where samples travel ("samples" in docs/metrics.md), or null.
  virtual Result<nlohmann::json> Samples() { return nlohmann::json(nullptr); }

  // Returns what the summary has of the graph that workers meet on ("graph" and what goes with
  // it in docs/metrics.md), or null.
  virtual nlohmann::json Network() const { return nullptr; }

  // Returns the runner as one of rounds, or null if it has none. A Run of such a runner that
  // fails because a worker was lost may be called again, for the same step, in another group.
  virtual RoundRunner* rounds() { return nullptr; }
};

// Collective. Makes the runner of options.algorithm. `dump` may be null, and must outlive the
// runner. Fails as the runners' Make do.
Result<std::unique_ptr<Runner>> MakeRunner(const TrainOptions& options,
                                           const RunnerPlace& place, GradientDump* dump);

}  // namespace elastiquant
