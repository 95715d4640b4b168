#include "elastiquant/ddp/staging.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

namespace elastiquant {
namespace {

// Calls fn with the flat values of a tensor in the host's memory, in its own type. Loops of our
// own, as ATen's copies would bring up a team of threads for each of the reducer's threads.
template <typename Fn>
void WithValues(const at::Tensor& t, const Fn& fn) {
  switch (t.scalar_type()) {
    case at::kHalf:
      return fn(t.mutable_data_ptr<at::Half>());
    case at::kBFloat16:
      return fn(t.mutable_data_ptr<at::BFloat16>());
    default:
      return fn(t.mutable_data_ptr<float>());
  }
}

bool IsKnownType(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

}  // namespace

Staging::Staging(const DdpPlan& plan, std::span<const DdpParameter> parameters)
    : plan_(plan),
      parameters_(parameters),
      arrived_(plan.parts.size()),
      host_(plan.parts.size()) {
  for (const PlannedBucket& bucket : plan.plan.buckets) buckets_.emplace_back(bucket.elements);
  Begin(nullptr);
}

void Staging::Begin(Metric* metric) {
  metric_ = metric;
  missing_.clear();
  for (const PlannedBucket& bucket : plan_.plan.buckets)
    missing_.push_back(bucket.slots.size());
  from_.assign(parameters_.size(), From::kNowhere);
}

std::span<float> Staging::ValuesOf(size_t p) {
  const BucketPlace place = plan_.place[p];
  return std::span(buckets_[place.bucket]).subspan(place.offset, parameters_[p].shape.elements);
}

template <typename Value>
void Staging::CopyIn(const Value* values, size_t p) {
  const std::span<float> to = ValuesOf(p);
  std::span<const float> from = to;
  if constexpr (std::is_same_v<Value, float>) {
    from = {values, to.size()};
  } else {
    std::copy_n(values, to.size(), to.data());
  }
  if (metric_ != nullptr) {
    metric_->CopyIn(p, from, to.data());
  } else if (from.data() != to.data()) {
    std::ranges::copy(from, to.data());
  }
}

template <typename Value>
void Staging::CopyOut(size_t p, Value* values) {
  const std::span<float> from = ValuesOf(p);
  if constexpr (std::is_same_v<Value, float>) {
    if (metric_ != nullptr) return metric_->CopyOut(p, from, values);
  } else if (metric_ != nullptr) {
    metric_->CopyOut(p, from, from.data());
  }
  std::ranges::transform(from, values, [](float v) { return static_cast<Value>(v); });
}

Result<bool> Staging::Take(size_t p, const at::Tensor& gradient) {
  if (from_[p] == From::kTake) {
    return Internal("a backward began before the last one had ended");
  }
  if (from_[p] == From::kArrive || gradient.layout() != at::kStrided ||
      !gradient.device().is_cpu() || !IsKnownType(gradient.scalar_type()) ||
      !gradient.is_non_overlapping_and_dense() ||
      static_cast<size_t>(gradient.numel()) != parameters_[p].shape.elements) {
    return false;
  }
  from_[p] = From::kTake;
  --missing_[plan_.place[p].bucket];
  WithValues(gradient, [&](const auto* values) { CopyIn(values, p); });
  return true;
}

Status Staging::Arrive(size_t d, const at::Tensor& gradients) {
  if (gradients.layout() != at::kStrided) {
    return Unsupported(
        "sparse gradients cannot be compressed: make the embedding dense "
        "(sparse=False), or leave it out of DDP");
  }
  if (!IsKnownType(gradients.scalar_type())) {
    return Unsupported(std::string("gradients of type ") +
                       c10::toString(gradients.scalar_type()) +
                       " cannot be compressed: use float32, float16 or bfloat16");
  }
  size_t expected = 0;
  for (const size_t b : plan_.parts[d]) expected += plan_.plan.buckets[b].elements;
  if (static_cast<size_t>(gradients.numel()) != expected || !gradients.is_contiguous()) {
    return InvalidArgument("DDP bucket " + std::to_string(d) + " has " +
                           std::to_string(gradients.numel()) + " values in place of " +
                           std::to_string(expected));
  }
  arrived_[d] = gradients;
  if (gradients.device().is_cpu()) {
    host_[d] = gradients;
  } else {
    if (!host_[d].defined()) {
      host_[d] = at::empty(gradients.sizes(),
                           gradients.options().device(at::kCPU).pinned_memory(true));
    }
    host_[d].copy_(gradients);
  }
  WithValues(host_[d], [&](const auto* values) {
    for (const size_t b : plan_.parts[d]) {
      missing_[b] = 0;
      for (const BucketSlot& slot : plan_.plan.buckets[b].slots) {
        if (from_[slot.parameter] == From::kTake) continue;
        from_[slot.parameter] = From::kArrive;
        CopyIn(values + plan_.position[slot.parameter], slot.parameter);
      }
    }
  });
  return {};
}

void Staging::Return(size_t b, bool is_mean) {
  WithValues(host_[plan_.ddp_bucket[b]], [&](auto* values) {
    using Value = std::remove_reference_t<decltype(*values)>;
    for (const BucketSlot& slot : plan_.plan.buckets[b].slots) {
      Value* to = values + plan_.position[slot.parameter];
      if (is_mean) {
        CopyOut(slot.parameter, to);
      } else {
        std::fill_n(to, parameters_[slot.parameter].shape.elements,
                    static_cast<Value>(std::numeric_limits<float>::quiet_NaN()));
      }
    }
  });
}

at::Tensor Staging::Depart(size_t d) {
  if (arrived_[d].device().is_cpu()) {
    host_[d].reset();  // DDP may put other buckets in its place, and free this one
  } else {
    arrived_[d].copy_(host_[d]);
  }
  return std::exchange(arrived_[d], at::Tensor());
}

}  // namespace elastiquant
