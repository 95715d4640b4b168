// What a model makes of a batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "elastiquant/data/loader.h"
#include "elastiquant/models/model.h"

namespace elastiquant {

struct Prediction {
  at::Tensor loss;      // the mean cross-entropy in nats, of one element; it has a gradient
  int64_t correct = 0;  // how often the true class has the greatest logit
  int64_t targets = 0;  // of so many: images, or bytes of text
};

// Under bf16 the forward pass runs as torch.autocast has it: products of matrices in bfloat16,
// and what needs more digits, such as the loss, in fp32. So do its gradients, which end as
// fp32.
Prediction Predict(Model& model, const Batch& batch, bool bf16 = false);

}  // namespace elastiquant
