// The engine behind DDP's communication hook. It takes DDP's buckets as backward fills them,
// has the mean over the workers made of them, and hands them back, on threads of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/ddp/ddp_plan.h"
#include "elastiquant/ddp/ddp_reduction.h"
#include "elastiquant/ddp/ddp_state.h"
#include "elastiquant/ddp/ddp_stats.h"
#include "elastiquant/ddp/engine_ties.h"
#include "elastiquant/ddp/exact_step.h"
#include "elastiquant/ddp/moment_tensors.h"
#include "elastiquant/ddp/payoff_clock.h"
#include "elastiquant/ddp/regrouped.h"
#include "elastiquant/ddp/step_finisher.h"
#include "elastiquant/ddp/step_futures.h"
#include "elastiquant/layers/memory_units.h"
#include "elastiquant/layers/run_codecs.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

struct DdpOptions {
  size_t bucket_elements = 65536;
  uint64_t seed = 0;
  int threads = 1;              // codec threads
  uint64_t measure_every = 50;  // steps between measurements of the error; 0: never
  // The user's own all-reduce, by which steps are sent where compression does not pay. If null,
  // all steps are compressed.
  AllReduce all_reduce = nullptr;
  // Whether all_reduce uses the network that compressed messages use, as Gloo does and NCCL may
  // not.
  bool shares_link = true;
  std::string exchange = "auto";                 // as ChooseExchange takes it
  std::map<std::string, std::string> down = {};  // by spec: the codec of means
  bool has_uncompressed = false;  // whether SetMetric may ask for uncompressed steps
  // Whether a step fails if neither SetMetric nor SetUnits was ever called.
  bool needs_settings = false;
  // Whether DDP may discard what comes of a parameter that no worker has used. RestoreMemory
  // must follow where it has.
  bool may_discard = false;
  // Returns what the last step shall count as having taken, for tests; if null, what it took.
  std::function<double(bool exact)> step_seconds = nullptr;
  // Called on worker 0 with something to tell the user, by the thread that calls Reduce or
  // Offer.
  std::function<void(const std::string&)> on_notice = nullptr;
  // Destroys the communicator, for which the worker that hosts the store waits for the others.
  // If null, Close does that.
  std::function<void(std::unique_ptr<Communicator>)> end = nullptr;
};

// Compresses the gradients of one DDP model. DdpHook drives it. Reduce and Offer may be called
// by one thread at a time. "Between steps" means at a time without a backward.
class DdpEngine {
 public:
  // Collective. `parameters` are all that DDP synchronises, in the same order on all workers.
  // Fails with InvalidArgument for a bad spec, and as Communicator::Connect does.
  static Result<std::shared_ptr<DdpEngine>> Create(CommunicatorOptions communicator,
                                                   std::vector<DdpParameter> parameters,
                                                   DdpOptions options);
  ~DdpEngine();
  DdpEngine(const DdpEngine&) = delete;
  DdpEngine& operator=(const DdpEngine&) = delete;

  // Takes DDP's bucket `index`, which DDP has filled: a flat tensor with the gradients of these
  // parameters. The future holds that tensor, with the mean over the workers in it. DDP fills
  // its buckets in order, the last one with `last`. While the layout is learnt, in the first
  // steps, nothing is sent before the last. Errors are the future's: DistBackendError for a
  // lost worker, c10::Error for all else. Where some worker has a NaN or infinity, or values
  // that its codec cannot hold, the mean is NaN on all, as a sum would be.
  Future Reduce(size_t index, bool last, const at::Tensor& gradients,
                const std::vector<size_t>& parameters);

  // Says whether DDP may still rebuild its buckets, which it does once, in backward's order.
  // Until then they are not learnt. Must be called before Reduce of a step's last bucket.
  void SetMayRebuild(bool may_rebuild) { may_rebuild_ = may_rebuild; }
  // Takes the gradient of one parameter, before Reduce of DDP's bucket that it is in, and with
  // the same values. A bucket of ours that is filled by such gradients is sent at once. Must
  // only be called in backwards that DDP synchronises. Not every gradient must be offered, nor
  // the same ones on all workers. The gradient is copied. Errors are for the futures of Reduce.
  void Offer(size_t parameter, const at::Tensor& gradient);

  // Returns how means come about, in the words of ExchangeChoice::Describe, by the spec that
  // parameters name.
  const std::map<std::string, std::string>& exchanges() const { return exchanges_; }

  DdpStats stats() const;
  // Makes the counts and Layers() begin anew. Must be called between steps.
  void ResetStats();
  // Returns Certificate::Lines of this worker's own messages. Must be called between steps.
  std::vector<nlohmann::json> Layers();

  // Returns what a run needs to go on as it would have: what codecs remember, levels that were
  // fitted, the count of steps, and DDP's buckets. Each worker has its own state, whose section
  // "identity" (StateIdentity) says so. Before the first step it has the same sections, but
  // "layout" has no buckets. Must be called between steps.
  Sections SaveState();
  // Takes up a state that SaveState returned. Fails with CorruptData, which names what differs
  // from this worker, or the section that is damaged; nothing has changed then. Must be called
  // between steps. CheckState makes these checks alone.
  Status LoadState(const Sections& sections);
  Status CheckState(const Sections& sections) const;
  // Sets the units of the parameters' gradients, as MemoryUnits::Set says. Must be called
  // between steps, with the same units on all workers.
  Status SetUnits(std::vector<double> units) {
    has_settings_ = true;
    return units_.Set(std::move(units));
  }
  // Sets the second moments by which gradients are compressed in the metric of an adaptive
  // optimiser (layers/metric.h), as MomentTensors::Set says. They are read in every step until
  // they are set again, and must have the same values on all workers, which each message
  // checks. With `uncompressed`, which needs DdpOptions::has_uncompressed, steps go
  // uncompressed until this is called again (LayerReduction::BeginStep): the moments may be of
  // too few steps to say anything. Steps that go by the user's own all-reduce still do. Must be
  // called between steps.
  Status SetMetric(std::vector<at::Tensor> moments, bool uncompressed = false) {
    has_settings_ = true;
    uncompressed_ = uncompressed && options_.has_uncompressed;
    return moments_.Set(std::move(moments));
  }
  // Makes what is remembered of these parameters what it was before the last step, because what
  // that has sent of them was discarded. Must be called between steps, with the same on all
  // workers, and once for each step if DdpOptions::may_discard.
  void RestoreMemory(const std::vector<size_t>& parameters);
  // Whether RestoreMemory must be called, and has not been since the last step.
  bool awaits_restoring() const { return awaits_restoring_; }
  // Sets the epoch, counted from 0: some codecs send more in the first ones. Must be called
  // between steps.
  Status SetEpoch(int epoch);

  // Ends communication. Within a step, or for an error, it ends that of all workers. Later
  // calls of Reduce fail. The others are told `farewell` if they still wait for this worker, or
  // the error.
  void Close(const std::string& farewell = "its script ended, or dropped the model",
             const Status& error = {});

 private:
  DdpEngine(std::vector<DdpParameter> parameters, DdpOptions options);

  Status TakeAhead(size_t parameter, const at::Tensor& gradient);
  Status StartStep();
  Status Begin(const std::vector<size_t>& first);
  Status Take(size_t index, bool last, const at::Tensor& gradients,
              const std::vector<size_t>& parameters);
  Status Send(size_t ddp_bucket, const at::Tensor& gradients);
  Status SendAsItIs(size_t index, bool last, const at::Tensor& gradients);
  void OnMean(size_t index, const at::Tensor& mean);
  void FinishExactStep();
  StepCounter::Size StepSize() const;
  void OnPeerLost(const Status& status);
  Status ChooseExchanges(const CodecsBySpec& codecs, int world_size);
  Status LearnLayout();
  Status MakeReduction(const DdpLayout& layout);
  void EndReduction();
  Status BeginReduction();
  DdpStateOwner Owner() const;
  void OnReduced(size_t bucket, bool is_mean);
  void Return(size_t bucket, bool is_mean);
  void Finish();
  Status FinishStep();
  std::vector<at::Tensor> Collect();
  void Fail(const Status& status);
  Traffic Sent() const;
  // The number of the step under way, counted from 1 as the schedule of fitting levels is.
  int64_t NextStep() const { return static_cast<int64_t>(step_) + 1; }

  const std::vector<DdpParameter> parameters_;
  const DdpOptions options_;
  std::unique_ptr<Communicator> comm_;
  int rank_ = 0, world_size_ = 1;
  DdpExchange exchange_;
  std::map<std::string, std::string> exchanges_;
  std::chrono::milliseconds patience_{};  // for the verdict on a lost worker

  // These are used by Reduce's thread, and by others between steps.
  std::unique_ptr<DdpReduction> reduction_;
  DdpLayout incoming_;               // DDP's buckets in this step, so far
  bool may_rebuild_ = false;         // whether DDP may rebuild its buckets
  bool settled_ = false;             // whether the layout was seen in two steps in a row
  bool begun_ = false;               // whether Reduce or Offer has begun this step
  bool streaming_ = false;           // whether this step's buckets are sent as they arrive
  std::vector<at::Tensor> waiting_;  // what came in a step that is not streaming
  Sections loaded_;                  // the memory, until there is a layout
  bool has_settings_ = false;        // whether SetMetric or SetUnits has been called
  MemoryUnits units_;
  MomentTensors moments_;
  DdpLayout remembered_;  // that of the run that was stopped, for the first step
  std::unique_ptr<Regrouped> regrouped_;  // null but in such a step
  std::unique_ptr<RunCodecs> codecs_;
  uint64_t step_ = 0;
  std::optional<PayoffClock> clock_;
  bool exact_ = false;         // whether this step goes as it is
  bool uncompressed_ = false;  // what SetMetric was told
  bool awaits_restoring_ = false;
  uint64_t gradient_bytes_ = 0;  // of this step's gradients, in their own types
  std::vector<nlohmann::json> final_layers_;

  // These are used by several threads.
  StepFutures futures_;
  StepCounter counter_;
  std::atomic<bool> is_closing_ = false;
  mutable std::mutex mutex_;  // for comm_'s end
  Traffic final_traffic_;
  const std::shared_ptr<EngineTies> ties_;
  ExactStep exact_step_;
  StepFinisher finisher_;
};

}  // namespace elastiquant
