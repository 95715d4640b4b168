// The mean of a model's gradients for one layout of DDP's buckets: they are staged in buckets
// of ours, which a LayerReduction reduces.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
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
  std::string asked = "auto";  // as ChooseExchange takes it; not for lossless codecs
  CodecsBySpec down = {};      // by some specs: under what means travel back

  // For what travels under the codec that parameters name `spec`.
  Result<ExchangeChoice> Choose(const std::string& spec, std::shared_ptr<const Codec> codec,
                                int world_size) const;
};

struct DdpReductionOptions {
  size_t bucket_elements = 65536;
  ReducerOptions reducer;  // without on_measured
  DdpExchange exchange = {};
  // Called by Take and Arrive: the bucket's values are here, and nowhere else yet.
  std::function<void(size_t bucket)> before_sent;
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
  // For codecs, what they remember, and the certificate. Steps go by the functions below.
  LayerReduction& layers() { return *layers_; }

  // A step is BeginStep, Arrive of each DDP bucket, Finish.
  Status BeginStep(uint64_t step);
  // See Staging::Take: before Arrive of the DDP bucket it is in. Returns whether a bucket of
  // ours was sent with it.
  Result<bool> Take(size_t parameter, const at::Tensor& gradient);
  // See Staging::Arrive.
  Status Arrive(size_t ddp_bucket, const at::Tensor& gradients);
  void Return(size_t bucket, bool is_mean) { staging_.Return(bucket, is_mean); }
  at::Tensor Depart(size_t ddp_bucket) { return staging_.Depart(ddp_bucket); }
  Result<StepOutcome> Finish() { return layers_->Finish(); }

  // As LayerReduction's, for the buckets of one DDP bucket. Errors: those of Arrive.
  void BeginExactStep();
  Status Flush(size_t ddp_bucket, const at::Tensor& gradients);

 private:
  DdpReduction(DdpLayout layout, DdpPlan plan, std::span<const DdpParameter> parameters,
               std::function<void(size_t bucket)> before_sent);

  Status Send(size_t bucket);

  const DdpLayout layout_;
  const DdpPlan plan_;
  const std::vector<ParameterShape> shapes_;
  const std::function<void(size_t bucket)> before_sent_;
  uint64_t coordinates_ = 0;
  Staging staging_;
  std::unique_ptr<LayerReduction> layers_;
};

}  // namespace elastiquant
