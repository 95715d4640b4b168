// What a model makes of a batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "elastiquant/data/loader.h"
#include "elastiquant/models/model.h"

namespace elastiquant {

struct Prediction {
  // The cross-entropy in nats, of one element: the mean over the targets, or under
  // Batch::weights the sum of weight * cross-entropy. It has a gradient.
  at::Tensor loss;
  int64_t correct = 0;  // how often the true class has the greatest logit
  int64_t targets = 0;  // of so many: images, or bytes of text
};

// Under bf16 the forward pass runs as torch.autocast has it: products of matrices in bfloat16,
// and what needs more digits, such as the loss, in fp32. So do its gradients, which end as
// fp32.
Prediction Predict(Model& model, const Batch& batch, bool bf16 = false);

}  // namespace elastiquant
