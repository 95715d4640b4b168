// The gradients of a model, as flat buckets that backward writes straight into.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/layers/bucket_plan.h"

namespace elastiquant {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

std::vector<ParameterShape> ShapesOf(std::span<const NamedTensor> parameters);

// Owns the buckets. Each p.grad is a view into one, so autograd accumulates in place; a hook on
// each parameter counts down its bucket, and tells as soon as backward has filled it.
// BackwardPass has one.
class FlatGradients {
 public:
  // Called on the thread that runs backward, once for each bucket and step.
  using ReadyFunction = std::function<void(size_t bucket)>;

  FlatGradients(const std::vector<NamedTensor>& parameters, BucketPlan plan,
                ReadyFunction ready);
  ~FlatGradients();
  FlatGradients(const FlatGradients&) = delete;
  FlatGradients& operator=(const FlatGradients&) = delete;

  const BucketPlan& plan() const { return plan_; }
  std::span<float> bucket(size_t index);
  // Returns the extra values of BucketPlanOptions::scalars. They must be set after Begin and
  // before backward.
  std::span<float> scalars();

  // Zeroes every gradient and expects a backward.
  void Begin();
  // Expects one more backward, whose gradients are added.
  void Continue();
  // Tells of a bucket that the caller has filled, in place of backward.
  void SetFilled(size_t bucket) {
    awaited_[bucket] = 0;
    ready_(bucket);
  }
  // Tells of the buckets that backward left unfilled because a parameter had no part in the
  // loss: its gradient is zero.
  void FinishBackward();

  // Scales all gradients so that the L2 norm of all of them together is at most `most`; 0: no
  // limit. Gradients that are the same on all workers stay so.
  void ClipNorm(double most);

  // Says whether to look for NaN and infinity in each gradient as backward fills it, so that a
  // layer can be named.
  void set_inspect(bool inspect) { inspect_ = inspect; }
  // Returns the first parameter that was found to have one since Begin, or -1.
  int64_t non_finite_parameter() const { return non_finite_; }

 private:
  class Hook;
  void OnGradient(size_t parameter, size_t bucket);

  BucketPlan plan_;
  ReadyFunction ready_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> flat_;  // by bucket
  std::vector<size_t> awaited_;   // by bucket: gradients still to come
  bool inspect_ = false;
  int64_t non_finite_ = -1;
};

}  // namespace elastiquant
