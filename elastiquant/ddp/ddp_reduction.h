// Averages a model's gradients for one layout of DDP's buckets: they are staged in buckets of
// ours, which a LayerReduction reduces.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/ddp/ddp_plan.h"
#include "elastiquant/ddp/staging.h"
#include "elastiquant/layers/layer_reduction.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// How means come about.
struct DdpExchange {
  std::string asked = "auto";  // as ChooseExchange takes it; lossless codecs choose
  CodecsBySpec down = {};      // for some specs: the codec of means on their way back

  // Chooses for what travels under `codec`, which parameters name `spec`.
  Result<ExchangeChoice> Choose(const std::string& spec, std::shared_ptr<const Codec> codec,
                                int world_size) const;
};

struct DdpReductionOptions {
  size_t bucket_elements = 65536;
  ReducerOptions reducer;  // without on_measured
  DdpExchange exchange = {};
  bool has_uncompressed = false;                   // as LayerReductionOptions has it
  std::function<void(size_t bucket)> before_sent;  // as LayerReductionOptions has it
};

// DdpEngine has one for the layout that it has learnt.
class DdpReduction {
 public:
  // Collective. `parameters` must outlive it.
  static Result<std::unique_ptr<DdpReduction>> Make(Communicator* comm, DdpLayout layout,
                                                    std::span<const DdpParameter> parameters,
                                                    const CodecsBySpec& codecs,
                                                    DdpReductionOptions options);

  const DdpLayout& layout() const { return layout_; }
  const DdpPlan& plan() const { return plan_; }
  // Returns the number of values in all buckets.
  uint64_t coordinates() const { return coordinates_; }
  std::span<const float> bucket(size_t index) { return staging_.bucket(index); }
  // Returns the reduction that it stands on, for codecs, what they remember, and the
  // certificate. Steps go by the functions below.
  LayerReduction& layers() { return *layers_; }

  // A step is BeginStep, Arrive of each DDP bucket, Finish.
  Status BeginStep(uint64_t step, bool uncompressed);
  // Does Staging::Take, before Arrive of the parameter's DDP bucket, and sends the bucket of
  // ours that is complete then. Returns whether one was sent.
  Result<bool> Take(size_t parameter, const at::Tensor& gradient);
  // Does Staging::Arrive, and sends the buckets of ours that were not sent before.
  Status Arrive(size_t ddp_bucket, const at::Tensor& gradients);
  void Return(size_t bucket, bool is_mean) { staging_.Return(bucket, is_mean); }
  at::Tensor Depart(size_t ddp_bucket) { return staging_.Depart(ddp_bucket); }
  Result<StepOutcome> Finish() { return layers_->Finish(); }

  // Ends what is under way, with its threads, which may call ReducerOptions::on_reduced until
  // it returns. Nothing but plan() and layout() may follow.
  void Stop() { layers_.reset(); }

  // Do what LayerReduction's do, Flush for the buckets of one DDP bucket. Fails as Arrive does.
  void BeginExactStep();
  Status Flush(size_t ddp_bucket, const at::Tensor& gradients);

 private:
  DdpReduction(DdpLayout layout, DdpPlan plan, std::span<const DdpParameter> parameters);

  const DdpLayout layout_;
  const DdpPlan plan_;
  const std::vector<ParameterShape> shapes_;
  uint64_t coordinates_ = 0;
  Staging staging_;
  std::unique_ptr<LayerReduction> layers_;
};

}  // namespace elastiquant
