// How much there is to compute for a model.
#pragma once

#include <ATen/core/Tensor.h>

#include "elastiquant/models/model.h"

namespace elastiquant {

// Returns the floating-point operations of a forward pass over the inputs, as libtorch's
// profiler counts those of convolutions and products of matrices; a multiplication and an
// addition are two. Backward has about twice as many. The model is left as it was.
double ForwardFlops(Model& model, const at::Tensor& inputs);

}  // namespace elastiquant
