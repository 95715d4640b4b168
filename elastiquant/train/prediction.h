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

Prediction Predict(Model& model, const Batch& batch);

}  // namespace elastiquant
