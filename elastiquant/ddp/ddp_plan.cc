#include "elastiquant/ddp/ddp_plan.h"

#include <map>
#include <utility>

#include "elastiquant/codec/codec.h"

namespace elastiquant {
namespace {

// Cuts one DDP bucket: an open bucket for each codec until it is full.
class Cutter {
 public:
  Cutter(std::span<const DdpParameter> parameters, size_t limit, size_t ddp_bucket,
         DdpPlan* plan)
      : parameters_(parameters), limit_(limit), ddp_bucket_(ddp_bucket), plan_(plan) {}

  void Add(size_t parameter) {
    const DdpParameter& p = parameters_[parameter];
    const auto [place, is_new] = open_.try_emplace(p.codec, plan_->plan.buckets.size());
    if (is_new) Open(p.codec);
    PlannedBucket& bucket = plan_->plan.buckets[place->second];
    bucket.slots.push_back({parameter, bucket.elements});
    bucket.elements += p.shape.elements;
    if (bucket.elements >= limit_) open_.erase(place);
  }

 private:
  void Open(const std::string& codec) {
    plan_->parts[ddp_bucket_].push_back(plan_->plan.buckets.size());
    plan_->plan.buckets.emplace_back();
    plan_->codecs.push_back(codec);
    plan_->ddp_bucket.push_back(ddp_bucket_);
  }

  std::span<const DdpParameter> parameters_;
  size_t limit_;
  size_t ddp_bucket_;
  DdpPlan* plan_;
  std::map<std::string, size_t> open_;  // by codec: the bucket
};

Status MarkExact(DdpPlan* plan) {
  std::map<std::string, bool> exact;
  for (size_t b = 0; b < plan->codecs.size(); ++b) {
    const auto [known, is_new] = exact.try_emplace(plan->codecs[b], false);
    if (is_new) {
      EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(plan->codecs[b]));
      known->second = codec->codec_class() == CodecClass::kLossless;
    }
    plan->plan.buckets[b].exact = known->second;
  }
  return {};
}

}  // namespace

Result<DdpPlan> PlanDdp(const DdpLayout& layout, std::span<const DdpParameter> parameters,
                        size_t bucket_elements) {
  if (bucket_elements == 0) return InvalidArgument("a bucket must hold at least 1 KiB");
  DdpPlan plan;
  plan.parts.resize(layout.size());
  plan.position.resize(parameters.size());
  std::vector<bool> seen(parameters.size(), false);
  std::vector<ParameterShape> shapes;
  for (const DdpParameter& p : parameters) shapes.push_back(p.shape);
  for (size_t d = 0; d < layout.size(); ++d) {
    Cutter cutter(parameters, bucket_elements, d, &plan);
    size_t position = 0;
    for (const size_t parameter : layout[d]) {
      if (parameter >= parameters.size() || seen[parameter]) {
        return InvalidArgument("DDP bucket " + std::to_string(d) + " holds " +
                               (parameter >= parameters.size()
                                    ? "a parameter that was not planned for"
                                    : parameters[parameter].shape.name + " a second time"));
      }
      seen[parameter] = true;
      plan.position[parameter] =
          std::exchange(position, position + parameters[parameter].shape.elements);
      cutter.Add(parameter);
    }
  }
  EQ_RETURN_IF_ERROR(MarkExact(&plan));
  for (PlannedBucket& bucket : plan.plan.buckets) bucket.name = NameOfBucket(bucket, shapes);
  return plan;
}

}  // namespace elastiquant
