#include "elastiquant/train/flat_gradients.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>

#include "elastiquant/kernels/norms.h"

namespace elastiquant {

class FlatGradients::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(FlatGradients* owner, size_t parameter, size_t bucket)
      : owner_(owner), parameter_(parameter), bucket_(bucket) {}
  void operator()(const at::Tensor&) override { owner_->OnGradient(parameter_, bucket_); }

 private:
  FlatGradients* owner_;
  size_t parameter_;
  size_t bucket_;
};

std::vector<ParameterShape> ShapesOf(std::span<const NamedTensor> parameters) {
  std::vector<ParameterShape> shapes;
  for (const auto& [name, tensor] : parameters) {
    const std::vector<size_t> dimensions(tensor.sizes().begin(), tensor.sizes().end());
    shapes.push_back(MakeParameterShape(name, dimensions));
  }
  return shapes;
}

FlatGradients::FlatGradients(const std::vector<NamedTensor>& parameters, BucketPlan plan,
                             ReadyFunction ready)
    : plan_(std::move(plan)), ready_(std::move(ready)) {
  for (const NamedTensor& parameter : parameters) parameters_.push_back(parameter.tensor);
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const PlannedBucket& bucket = plan_.buckets[b];
    flat_.push_back(at::zeros({static_cast<int64_t>(bucket.elements)}));
    for (const BucketSlot& slot : bucket.slots) {
      at::Tensor& parameter = parameters_[slot.parameter];
      parameter.mutable_grad() =
          flat_[b]
              .narrow(0, static_cast<int64_t>(slot.offset), parameter.numel())
              .view(parameter.sizes());
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameter, std::make_unique<Hook>(this, slot.parameter, b));
    }
  }
  awaited_.resize(flat_.size());
}

FlatGradients::~FlatGradients() {
  for (at::Tensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
    parameter.mutable_grad().reset();
  }
}

std::span<float> FlatGradients::bucket(size_t index) {
  return {flat_[index].data_ptr<float>(), static_cast<size_t>(flat_[index].numel())};
}

std::span<float> FlatGradients::scalars() {
  return bucket(plan_.scalars.bucket).subspan(plan_.scalars.offset);
}

void FlatGradients::Begin() {
  const c10::NoGradGuard no_grad;
  for (at::Tensor& flat : flat_) flat.zero_();
  Continue();
  non_finite_ = -1;
}

void FlatGradients::Continue() {
  for (size_t b = 0; b < flat_.size(); ++b) awaited_[b] = plan_.buckets[b].slots.size();
}

void FlatGradients::OnGradient(size_t parameter, size_t bucket) {
  if (inspect_ && non_finite_ < 0 &&
      !at::isfinite(parameters_[parameter].grad()).all().item<bool>()) {
    non_finite_ = static_cast<int64_t>(parameter);
  }
  if (--awaited_[bucket] == 0) ready_(bucket);
}

void FlatGradients::ClipNorm(double most) {
  if (most == 0) return;
  const auto for_each = [this](const auto& fn) {
    for (size_t b = 0; b < flat_.size(); ++b) {
      for (const BucketSlot& slot : plan_.buckets[b].slots) {
        const auto elements = static_cast<size_t>(parameters_[slot.parameter].numel());
        fn(bucket(b).subspan(slot.offset, elements));
      }
    }
  };
  double squares = 0;
  for_each([&](std::span<float> g) { squares += SumSquares(g.data(), g.size()); });
  const double norm = std::sqrt(squares);
  if (norm <= most) return;
  const auto factor = static_cast<float>(most / norm);
  for_each([&](std::span<float> gradient) {
    for (float& g : gradient) g *= factor;
  });
}

void FlatGradients::FinishBackward() {
  for (size_t b = 0; b < awaited_.size(); ++b) {
    // A bucket of extra values alone waits for no gradient, so nothing has told of it.
    if (awaited_[b] != 0 || plan_.buckets[b].slots.empty()) ready_(b);
    awaited_[b] = 0;
  }
}

}  // namespace elastiquant
