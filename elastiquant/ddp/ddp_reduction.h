// The mean of a model's gradients, for one layout of DDP's buckets: ours, the reducer over
// them, what codecs remember of them, and the measured variance of each layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/ddp/ddp_plan.h"
#include "elastiquant/ddp/staging.h"
#include "elastiquant/exchange/exchange_choice.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/certificate.h"
#include "elastiquant/layers/codec_memory.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// As they are now, by the spec that parameters name: with fitted levels, for the epoch.
using CodecsBySpec = std::map<std::string, std::shared_ptr<const Codec>>;

// How means come about.
struct DdpExchange {
  std::string asked = "auto";  // as ChooseExchange takes it; not of lossless codecs
  CodecsBySpec down = {};      // of some specs, that means travel back under

  // Of what travels under the codec, which parameters name `spec`.
  Result<ExchangeChoice> Choose(const std::string& spec, std::shared_ptr<const Codec> codec,
                                int world_size) const;
};

struct DdpReductionOptions {
  size_t bucket_elements = 65536;
  ReducerOptions reducer;  // without callbacks
  DdpExchange exchange = {};
  // Called by Take and Arrive: the bucket's values are here, and nowhere else yet.
  std::function<void(size_t bucket)> before_sent;
  // Called by a thread of the reducer when it has done a bucket of ours.
  std::function<void(size_t bucket, bool is_mean)> on_reduced;
};

class DdpReduction {
 public:
  // Collective. parameters must outlive it.
  static Result<std::unique_ptr<DdpReduction>> Make(Communicator* comm, DdpLayout layout,
                                                    std::span<const DdpParameter> parameters,
                                                    const CodecsBySpec& codecs,
                                                    DdpReductionOptions options);

  const DdpLayout& layout() const { return layout_; }
  const DdpPlan& plan() const { return plan_; }
  uint64_t coordinates() const { return coordinates_; }
  std::span<const float> bucket(size_t index) { return staging_.bucket(index); }

  // A step is BeginStep, Arrive of each DDP bucket, Finish.
  Status BeginStep(uint64_t step);
  // See Staging::Take: before Arrive of the DDP bucket it is in. Returns whether a bucket of
  // ours was sent with it.
  Result<bool> Take(size_t parameter, const at::Tensor& gradient);
  // See Staging::Arrive.
  Status Arrive(size_t ddp_bucket, const at::Tensor& gradients);
  void Return(size_t bucket, bool is_mean) { staging_.Return(bucket, is_mean); }
  at::Tensor Depart(size_t ddp_bucket) { return staging_.Depart(ddp_bucket); }
  Result<StepOutcome> Finish() { return reducer_->Finish(); }

  // A step that is sent otherwise, and exactly, is BeginExactStep, Flush of each DDP bucket
  // and, if all had a mean, CommitFlushed. Flush adds to the gradients all that codecs remember
  // of them (SendExactly). Errors: those of Arrive.
  void BeginExactStep();
  Status Flush(size_t ddp_bucket, const at::Tensor& gradients);
  bool flushes() const { return flushes_; }  // in this step: something may be remembered
  void CommitFlushed();

  // Between steps: the buckets travel under these from now on.
  Status UseCodecs(const CodecsBySpec& codecs);
  // Between steps: the unit of a parameter's gradient changes by this (CodecMemory::Rescale).
  void RescaleMemory(size_t parameter, double factor) { memory_->Rescale(parameter, factor); }
  // In the next step, or in all, what a parameter's codec remembers is kept as it was before:
  // of one, or of all whose gradient is zero on this worker.
  void KeepMemory(size_t parameter) { kept_[parameter] = memory_->Copy(parameter); }
  void KeepMemoryOfZeros() { keep_zeros_ = true; }
  // After that step: so that it is again, because what was sent has not been applied.
  void RestoreMemory(size_t parameter);
  void SaveMemory(Sections* sections) const { memory_->Save(sections); }
  Status LoadMemory(const Sections& sections);

  ReducerStats TakeStats() { return reducer_->TakeStats(); }
  Certificate& certificate() { return certificate_; }

 private:
  DdpReduction(Communicator* comm, DdpLayout layout, DdpPlan plan,
               std::span<const DdpParameter> parameters, DdpReductionOptions options);

  Status Send(size_t bucket);
  void KeepZeros(size_t bucket);
  void FlushBucket(size_t bucket);
  Result<std::unique_ptr<GradientReducer>> MakeReducer();
  Result<ExchangeChoice> ChoiceOf(size_t bucket, const CodecsBySpec& codecs) const;

  Communicator* const comm_;
  const DdpLayout layout_;
  const DdpPlan plan_;
  const DdpReductionOptions options_;
  std::vector<ParameterShape> shapes_;
  uint64_t coordinates_ = 0;
  Staging staging_;
  Certificate certificate_;
  CodecsBySpec codecs_;                       // in use
  std::unique_ptr<GradientReducer> reducer_;  // destroyed before what its threads use
  // By bucket, of a step that is sent exactly: what its codec shall remember, by field.
  std::vector<std::vector<std::vector<float>>> flushed_;
  bool flushes_ = false;   // in this step, of those
  bool is_empty_ = false;  // of what such a step would send: all has been sent
  std::unique_ptr<CodecMemory> memory_;
  bool keep_zeros_ = false;
  std::map<size_t, std::vector<float>> kept_;  // by parameter
};

}  // namespace elastiquant
