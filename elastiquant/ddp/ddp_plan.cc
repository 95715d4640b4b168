#include "elastiquant/ddp/ddp_plan.h"

#include <map>
#include <utility>

#include "elastiquant/codec/codec.h"

namespace elastiquant {
namespace {

// Cuts one DDP bucket: an open bucket for each codec until it is full.
class Cutter {
 public:
  Cutter(std::span<const DdpParameter> parameters, size_t limit)
      : parameters_(parameters), limit_(limit) {}

  void Add(size_t parameter) {
    const DdpParameter& p = parameters_[parameter];
    Open& open = open_[p.codec];
    open.bucket.slots.push_back({parameter, open.bucket.elements});
    open.bucket.elements += p.shape.elements;
    open.filled = added_++;
    if (open.bucket.elements >= limit_) Close(p.codec);
  }

  void Finish(size_t ddp_bucket, DdpPlan* plan) {
    while (!open_.empty()) Close(open_.begin()->first);
    for (auto& [filled, bucket] : closed_) {
      const size_t index = plan->plan.buckets.size();
      for (const BucketSlot& slot : bucket.second.slots) {
        plan->place[slot.parameter] = {index, slot.offset};
      }
      plan->parts[ddp_bucket].push_back(index);
      plan->plan.buckets.push_back(std::move(bucket.second));
      plan->codecs.push_back(bucket.first);
      plan->ddp_bucket.push_back(ddp_bucket);
    }
  }

 private:
  struct Open {
    PlannedBucket bucket;
    size_t filled = 0;  // by this parameter, of those added
  };

  void Close(const std::string& codec) {
    auto open = open_.extract(codec);
    closed_[open.mapped().filled] = {open.key(), std::move(open.mapped().bucket)};
  }

  std::span<const DdpParameter> parameters_;
  size_t limit_;
  size_t added_ = 0;
  std::map<std::string, Open> open_;                                // by codec
  std::map<size_t, std::pair<std::string, PlannedBucket>> closed_;  // by Open::filled
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
  plan.place.resize(parameters.size());
  std::vector<bool> seen(parameters.size(), false);
  std::vector<ParameterShape> shapes;
  for (const DdpParameter& p : parameters) shapes.push_back(p.shape);
  for (size_t d = 0; d < layout.size(); ++d) {
    Cutter cutter(parameters, bucket_elements);
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
    cutter.Finish(d, &plan);
  }
  EQ_RETURN_IF_ERROR(MarkExact(&plan));
  for (PlannedBucket& bucket : plan.plan.buckets) bucket.name = NameOfBucket(bucket, shapes);
  return plan;
}

}  // namespace elastiquant
