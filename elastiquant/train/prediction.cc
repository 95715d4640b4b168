#include "elastiquant/train/prediction.h"

#include <ATen/ops/cross_entropy_loss.h>

namespace elastiquant {

Prediction Predict(Model& model, const Batch& batch) {
  const at::Tensor logits = model.Forward(batch.inputs);
  const at::Tensor targets = model.Targets(batch.inputs, batch.labels);
  return {.loss = at::cross_entropy_loss(logits, targets),
          .correct = logits.detach().argmax(1).eq(targets).sum().item<int64_t>(),
          .targets = targets.numel()};
}

}  // namespace elastiquant
