// The vectors that `analyze` looks at.
#pragma once

#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant::cli {

struct AnalyzeInput {
  std::string name;
  std::vector<float> values;        // at least one, all finite
  std::vector<TensorShape> shapes;  // of the tensors in it, in order; empty if unknown
};

// Each of `paths` is a .npy file, or a folder whose .npy files are taken by name. Shapes come
// from a layers.json beside the file, as `train --dump-gradients` writes it.
Result<std::vector<AnalyzeInput>> ReadAnalyzeInputs(const std::vector<std::string>& paths);

}  // namespace elastiquant::cli
