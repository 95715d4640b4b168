// Loads the weights that a run begins with (--init) from a safetensors file, such as PyTorch's
// safetensors.torch.save_file(model.state_dict(), FILE) or a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/train/flat_gradients.h"

namespace elastiquant {

// Copies the file's tensors into those of `state` (Replica::State), by name. F16 and BF16
// become F32. Names that begin with "optimizer." and all metadata are left alone, but a
// checkpoint's checksum must be right. Returns text that tells the content from any other, for
// Fingerprint. Fails as ReadFile, Md5Of and ParseCheckpoint do, and with InvalidArgument, which
// names the tensors that are missing, that the model has not, or that have another shape or
// dtype; `state` is as it was then.
Result<std::string> LoadInitialWeights(const std::string& file,
                                       const std::vector<NamedTensor>& state);

}  // namespace elastiquant
