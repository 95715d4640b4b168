// The networks that `elastiquant train` knows, and how to make one by name.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// A classifier of images, or a language model. named_parameters() lists the parameters in the
// order in which Forward uses them, under torchvision's names, such as "layer1.0.conv1.weight",
// or nanoGPT's; the last is the first whose gradient backward completes. Parameters are fp32,
// buffers fp32 or int64, and all plainly contiguous (a convolution's weight lies as [out, in,
// height, width]), so p and p.grad may be views into flat buffers. Activations are
// channels-last where that is faster; that never shows outside.
class Model : public torch::nn::Module {
 public:
  // Returns the logits, fp32 [batch, classes]. Images are fp32 [batch, channels, image_size,
  // image_size], of any memory format; text is fp32 [batch, bytes + 1], for batch * bytes rows
  // of logits.
  virtual at::Tensor Forward(const at::Tensor& inputs) = 0;
  // Returns the classes that the rows of the logits should tell, int64: the labels that come
  // with the inputs, or, for a language model, the bytes of the inputs that come next.
  virtual at::Tensor Targets(const at::Tensor& inputs, const at::Tensor& labels) const {
    (void)inputs;
    return labels;
  }
  // Gives all parameters their initial values, which are a function of the seed.
  virtual void Initialise(uint64_t seed);
};

struct ModelOptions {
  int64_t classes = 10;     // at least 2
  int64_t channels = 3;     // those of the input images: 1 (grey) or 3
  int64_t image_size = 32;  // the side of the square input images, in pixels
  uint64_t seed = 0;        // the initial weights are a function of the seed and the name alone
};

// Makes "resnet20" and the like, newly initialised (He normal, fan out) and in training mode.
// "gpt" and "vit" may have parameters, as in "gpt:layers=2,width=64" (transformer.h).
// The resnet18/34/50 take the 32-pixel stem (3x3, stride 1, no pooling) where image_size is
// below 64 and the ImageNet stem otherwise; "resnet18-32px" and "resnet18-imagenet" insist on
// theirs. Fails with InvalidArgument, which gives the names known, or the range of the option
// that is wrong.
Result<std::shared_ptr<Model>> MakeModel(std::string_view name, const ModelOptions& options);

// Returns the number of bytes that a language model takes at once, or 0 for a classifier.
Result<int64_t> ContextOf(std::string_view name);

// What is known of a model without making it.
struct ModelInfo {
  std::string name;         // for MakeModel
  int64_t parameters = 0;   // trainable ones, with the options below
  ModelOptions options;     // those of the publication
  std::string description;  // one line
};

// Returns every model, smallest family first.
std::vector<ModelInfo> ListModels();

// Returns the number of trainable values in a model.
int64_t CountParameters(const Model& model);

}  // namespace elastiquant
