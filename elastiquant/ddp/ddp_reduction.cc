#include "elastiquant/ddp/ddp_reduction.h"

#include <algorithm>
#include <utility>

namespace elastiquant {
namespace {

std::vector<ParameterShape> ShapesOf(std::span<const DdpParameter> parameters) {
  std::vector<ParameterShape> shapes;
  for (const DdpParameter& p : parameters) shapes.push_back(p.shape);
  return shapes;
}

}  // namespace

Result<ExchangeChoice> DdpExchange::Choose(const std::string& spec,
                                           std::shared_ptr<const Codec> codec,
                                           int world_size) const {
  const auto back = down.find(spec);
  const bool lossless = codec->codec_class() == CodecClass::kLossless;
  return ChooseExchange(std::move(codec), back == down.end() ? nullptr : back->second,
                        lossless ? "codec" : asked, world_size);
}

DdpReduction::DdpReduction(DdpLayout layout, DdpPlan plan,
                           std::span<const DdpParameter> parameters)
    : layout_(std::move(layout)),
      plan_(std::move(plan)),
      shapes_(ShapesOf(parameters)),
      staging_(plan_, parameters) {
  for (const PlannedBucket& bucket : plan_.plan.buckets) coordinates_ += bucket.elements;
}

Result<std::unique_ptr<DdpReduction>> DdpReduction::Make(
    Communicator* comm, DdpLayout layout, std::span<const DdpParameter> parameters,
    const CodecsBySpec& codecs, DdpReductionOptions options) {
  EQ_ASSIGN_OR_RETURN(DdpPlan plan, PlanDdp(layout, parameters, options.bucket_elements));
  std::unique_ptr<DdpReduction> made(
      new DdpReduction(std::move(layout), std::move(plan), parameters));
  LayerBuckets buckets{made->plan_.plan, made->shapes_, {}, made->plan_.codecs};
  for (size_t b = 0; b < made->plan_.plan.buckets.size(); ++b) {
    buckets.gradients.push_back(made->staging_.bucket(b));
  }
  const auto choose = [specs = made->plan_.codecs, exchange = options.exchange,
                       world = comm->world_size()](size_t bucket,
                                                   std::shared_ptr<const Codec> codec) {
    return exchange.Choose(specs[bucket], std::move(codec), world);
  };
  EQ_ASSIGN_OR_RETURN(made->layers_,
                      LayerReduction::Make(comm, std::move(buckets), codecs,
                                           {.reducer = std::move(options.reducer),
                                            .choose = choose,
                                            .conversion = Conversion::kByOwner,
                                            .has_uncompressed = options.has_uncompressed,
                                            .before_sent = std::move(options.before_sent)}));
  return made;
}

Status DdpReduction::BeginStep(uint64_t step, bool uncompressed) {
  EQ_RETURN_IF_ERROR(layers_->BeginStep(step, uncompressed));
  staging_.Begin(layers_->step_metric());
  return {};
}

void DdpReduction::BeginExactStep() {
  layers_->BeginExactStep();
  staging_.Begin(layers_->step_metric());
}

Status DdpReduction::Flush(size_t d, const at::Tensor& gradients) {
  const std::vector<size_t>& parts = plan_.parts[d];
  const bool remembers =
      std::ranges::any_of(parts, [&](size_t b) { return layers_->remembers(b); });
  if (!remembers || !layers_->flushes()) return {};
  EQ_RETURN_IF_ERROR(staging_.Arrive(d, gradients));
  for (const size_t b : parts) {
    layers_->Flush(b);
    staging_.Return(b, /*is_mean=*/true);
  }
  (void)staging_.Depart(d);
  return {};
}

Result<bool> DdpReduction::Take(size_t parameter, const at::Tensor& gradient) {
  EQ_ASSIGN_OR_RETURN(const bool taken, staging_.Take(parameter, gradient));
  const size_t b = plan_.place[parameter].bucket;
  if (!taken || !staging_.complete(b)) return false;
  EQ_RETURN_IF_ERROR(layers_->MarkReady(b));
  return true;
}

Status DdpReduction::Arrive(size_t ddp_bucket, const at::Tensor& gradients) {
  std::vector<size_t> waiting;
  for (const size_t b : plan_.parts[ddp_bucket]) {
    if (!staging_.complete(b)) waiting.push_back(b);
  }
  EQ_RETURN_IF_ERROR(staging_.Arrive(ddp_bucket, gradients));
  for (const size_t b : waiting) EQ_RETURN_IF_ERROR(layers_->MarkReady(b));
  return {};
}

}  // namespace elastiquant
