#include "elastiquant/ddp/ddp_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "elastiquant/codec/codec.h"

namespace elastiquant {
namespace {

// The last bucket has this part of others' size, unless it is one large tensor.
constexpr size_t kLastPart = 8;
// What is ready before it goes ahead if there are more elements of a codec.
constexpr size_t kWorthAMessage = 1024;

// Cuts one DDP bucket: an open bucket for each codec until it is full.
class Cutter {
 public:
  Cutter(std::span<const DdpParameter> parameters, size_t limit)
      : parameters_(parameters), limit_(limit) {}

  void Add(size_t parameter) {
    const DdpParameter& p = parameters_[parameter];
    Bucket& open = open_[p.codec];
    open.planned.slots.push_back({parameter, open.planned.elements});
    open.planned.elements += p.shape.elements;
    open.filled = added_++;
    if (open.planned.elements >= limit_) Close(p.codec);
  }

  void CloseLargerThan(size_t elements) {
    for (auto next = open_.begin(); next != open_.end();) {
      const auto open = next++;  // closing takes it out
      if (open->second.planned.elements > elements) Close(open->first);
    }
  }

  void Finish(size_t ddp_bucket, DdpPlan* plan) {
    while (!open_.empty()) Close(open_.begin()->first);
    std::ranges::sort(closed_, {}, [](const auto& entry) { return entry.second.filled; });
    for (auto& [codec, bucket] : closed_) {
      const size_t index = plan->plan.buckets.size();
      for (const BucketSlot& slot : bucket.planned.slots) {
        plan->place[slot.parameter] = {index, slot.offset};
      }
      plan->parts[ddp_bucket].push_back(index);
      plan->plan.buckets.push_back(std::move(bucket.planned));
      plan->codecs.push_back(codec);
      plan->ddp_bucket.push_back(ddp_bucket);
    }
  }

 private:
  struct Bucket {
    PlannedBucket planned;
    size_t filled = 0;  // by this parameter, of those added
  };

  void Close(const std::string& codec) {
    auto open = open_.extract(codec);
    closed_.emplace_back(std::move(open.key()), std::move(open.mapped()));
  }

  std::span<const DdpParameter> parameters_;
  size_t limit_;
  size_t added_ = 0;
  std::map<std::string, Bucket> open_;                  // by codec
  std::vector<std::pair<std::string, Bucket>> closed_;  // with their codecs
};

// From which of a DDP bucket's parameters on there are no more than so many elements.
size_t TailOf(const std::vector<size_t>& bucket, std::span<const DdpParameter> parameters,
              size_t elements) {
  size_t tail = bucket.size();
  while (tail > 0 && parameters[bucket[tail - 1]].shape.elements <= elements) {
    elements -= parameters[bucket[--tail]].shape.elements;
  }
  return tail;
}

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

// Sets where each parameter lies in its DDP bucket.
Status Locate(const DdpLayout& layout, std::span<const DdpParameter> parameters,
              DdpPlan* plan) {
  std::vector<bool> seen(parameters.size(), false);
  for (size_t d = 0; d < layout.size(); ++d) {
    size_t position = 0;
    for (const size_t p : layout[d]) {
      if (p >= parameters.size() || seen[p]) {
        return InvalidArgument("DDP bucket " + std::to_string(d) + " holds " +
                               (p >= parameters.size()
                                    ? "a parameter that was not planned for"
                                    : parameters[p].shape.name + " a second time"));
      }
      seen[p] = true;
      plan->position[p] = std::exchange(position, position + parameters[p].shape.elements);
    }
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
  EQ_RETURN_IF_ERROR(Locate(layout, parameters, &plan));
  for (size_t d = 0; d < layout.size(); ++d) {
    Cutter cutter(parameters, bucket_elements);
    // While the last bucket of all travels there is no backward left to do.
    const bool is_last = d + 1 == layout.size();
    const size_t tail =
        is_last ? TailOf(layout[d], parameters, bucket_elements / kLastPart) : 0;
    for (size_t i = 0; i < layout[d].size(); ++i) {
      if (i == tail) cutter.CloseLargerThan(kWorthAMessage);
      cutter.Add(layout[d][i]);
    }
    cutter.Finish(d, &plan);
  }
  EQ_RETURN_IF_ERROR(MarkExact(&plan));
  std::vector<ParameterShape> shapes;
  for (const DdpParameter& p : parameters) shapes.push_back(p.shape);
  for (PlannedBucket& bucket : plan.plan.buckets) bucket.name = NameOfBucket(bucket, shapes);
  return plan;
}

}  // namespace elastiquant
