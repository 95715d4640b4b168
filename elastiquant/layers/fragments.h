// How a model is cut into fragments, which are averaged at different times.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/bucket_plan.h"

namespace elastiquant {

// Returns the layers of a model, each as the numbers of its parameters, in the order of the
// model. A layer has the parameters of one module, which are those whose names differ only
// after the last dot. A module without a matrix, such as a norm, joins the module before it, or
// the next one if it is the first. What torch.nn.utils.parametrize keeps of a weight ("fc.
// parametrizations.weight.original0") belongs to the module of the weight ("fc").
std::vector<std::vector<size_t>> LayersOf(std::span<const ParameterShape> shapes);

// Deals the layers of a model to `fragments` fragments of about the same size, because the
// largest one decides how fast a link must be: from the largest layer to the smallest, each to
// the fragment that has the fewest values so far. (Streaming DiLoCo deals layers in turn. Its
// layers are transformer blocks of one size, and in a ResNet every other layer is a norm.)
// Returns the fragment of each parameter, which depends on names and shapes only, so that all
// workers find the same. Fails with InvalidArgument if there are fewer layers than fragments.
Result<std::vector<size_t>> BalancedFragments(std::span<const ParameterShape> shapes,
                                              size_t fragments);

}  // namespace elastiquant
