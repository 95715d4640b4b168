// --init: the weights that a run begins with, from a safetensors file such as PyTorch's
// safetensors.torch.save_file(model.state_dict(), FILE) or a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/train/flat_gradients.h"

namespace elastiquant {

// Copies the file's tensors into those of `state` (Replica::State), by name. F16 and BF16
// become F32; names beginning with "optimizer." and all metadata are left alone, but a
// checkpoint's checksum is held to. Returns what tells the content from another's, for
// Fingerprint. Errors: those of ReadFile and ParseCheckpoint; InvalidArgument naming the
// tensors that are missing, that the model has not, and that have another shape or dtype. Then
// `state` is as it was.
Result<std::string> LoadInitialWeights(const std::string& file,
                                       const std::vector<NamedTensor>& state);

}  // namespace elastiquant
