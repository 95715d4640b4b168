// Residual networks (He et al. 2015, "Deep Residual Learning for Image Recognition").
#pragma once

#include <memory>
#include <vector>

#include "elastiquant/models/model.h"

namespace elastiquant {

// How a shortcut changes the number of channels: zeros added (option A, no parameters) or a
// 1x1 convolution (option B).
enum class Shortcut { kZeroPad, kProjection };
enum class Stem {
  k32Pixel,   // 3x3 convolution, stride 1
  kImageNet,  // 7x7 convolution, stride 2, then 3x3 max-pooling, stride 2
};

struct ResNetShape {
  std::vector<int64_t> blocks;  // residual blocks of each stage; a stage doubles the channels
  int64_t width = 16;           // channels of the stem and the first stage
  bool bottleneck = false;      // 1x1, 3x3, 1x1 blocks with four times the channels out
  Shortcut shortcut = Shortcut::kZeroPad;
  Stem stem = Stem::k32Pixel;
};

// Returns a network of section 4.2, which has 6n + 2 layers: ResNet-20 is n = 3.
ResNetShape CifarResNet(int64_t blocks_per_stage);
// Returns a network of section 4.1; `layers` is 18, 34 or 50.
ResNetShape ImageNetResNet(int layers, Stem stem);

std::shared_ptr<Model> MakeResNet(const ResNetShape& shape, const ModelOptions& options);

}  // namespace elastiquant
