// Plain convolutional networks, without shortcuts.
#pragma once

#include <memory>

#include "elastiquant/models/model.h"

namespace elastiquant {

// CNN3 of DAGC's experiments (Lu et al., 2023, and their code): two 5x5 convolutions to 32
// channels, each with ReLU and 2x2 pooling, and two linear layers with 256 hidden values.
std::shared_ptr<Model> MakeCnn3(const ModelOptions& options);

// VGG-11 (Simonyan and Zisserman, "Very Deep Convolutional Networks", 2015, configuration A)
// for small images: batch normalisation after each convolution, and one linear layer. A
// pooling that would leave nothing of an image is left out.
std::shared_ptr<Model> MakeVgg11(const ModelOptions& options);

}  // namespace elastiquant
