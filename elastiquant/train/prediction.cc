#include "elastiquant/train/prediction.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/cross_entropy_loss.h>

namespace elastiquant {
namespace {

// torch.autocast("cpu", torch.bfloat16), if it is wanted, for as long as it lives.
class Autocast {
 public:
  explicit Autocast(bool wanted) : wanted_(wanted) {
    if (!wanted_) return;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Autocast() {
    if (!wanted_) return;
    // Copies of the weights in bfloat16, which are of this step.
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const bool wanted_;
};

at::Tensor LossOf(const at::Tensor& logits, const at::Tensor& targets,
                  const at::Tensor& weights) {
  if (!weights.defined()) return at::cross_entropy_loss(logits, targets);
  const at::Tensor losses =
      at::cross_entropy_loss(logits, targets, /*weight=*/{}, at::Reduction::None);
  return (losses * weights).sum();
}

}  // namespace

Prediction Predict(Model& model, const Batch& batch, bool bf16) {
  const Autocast autocast(bf16);
  const at::Tensor logits = model.Forward(batch.inputs);
  const at::Tensor targets = model.Targets(batch.inputs, batch.labels);
  return {.loss = LossOf(logits, targets, batch.weights),
          .correct = logits.detach().argmax(1).eq(targets).sum().item<int64_t>(),
          .targets = targets.numel()};
}

}  // namespace elastiquant
