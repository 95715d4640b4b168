#include "elastiquant/models/resnet.h"

#include <ATen/ops/constant_pad_nd.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <utility>

namespace elastiquant {
namespace {

namespace nn = torch::nn;

nn::Conv2d Convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// Option A: every stride-th pixel, with the new channels zero, half of them on either side.
class ZeroPadShortcutImpl : public nn::Module {
 public:
  ZeroPadShortcutImpl(int64_t in, int64_t out, int64_t stride)
      : before_((out - in) / 2), after_(out - in - before_), stride_(stride) {}

  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor pixels =
        x.slice(2, 0, c10::nullopt, stride_).slice(3, 0, c10::nullopt, stride_);
    return at::constant_pad_nd(pixels, {0, 0, 0, 0, before_, after_});
  }

 private:
  int64_t before_, after_, stride_;
};
TORCH_MODULE(ZeroPadShortcut);

// Option B, under torchvision's names.
class ProjectionShortcutImpl : public nn::Module {
 public:
  ProjectionShortcutImpl(int64_t in, int64_t out, int64_t stride)
      : conv_(register_module("0", Convolution(in, out, 1, stride))),
        norm_(register_module("1", nn::BatchNorm2d(out))) {}

  at::Tensor forward(const at::Tensor& x) { return norm_->forward(conv_->forward(x)); }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
};
TORCH_MODULE(ProjectionShortcut);

// relu(branch(x) + shortcut(x)), where the branch is two or three convolutions.
class ResidualBlockImpl : public nn::Module {
 public:
  ResidualBlockImpl(int64_t in, int64_t width, int64_t stride, const ResNetShape& shape) {
    const int64_t out = shape.bottleneck ? 4 * width : width;
    if (shape.bottleneck) {
      AddConvolution(in, width, 1, 1);
      AddConvolution(width, width, 3, stride);
      AddConvolution(width, out, 1, 1);
    } else {
      AddConvolution(in, width, 3, stride);
      AddConvolution(width, out, 3, 1);
    }
    if (stride == 1 && in == out) return;
    if (shape.shortcut == Shortcut::kZeroPad) {
      zero_pad_ = register_module("shortcut", ZeroPadShortcut(in, out, stride));
    } else {
      projection_ = register_module("downsample", ProjectionShortcut(in, out, stride));
    }
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x;
    for (size_t i = 0; i < convs_.size(); ++i) {
      y = norms_[i]->forward(convs_[i]->forward(y));
      if (i + 1 < convs_.size()) y = y.relu_();
    }
    return y.add_(ShortcutOf(x)).relu_();
  }

 private:
  void AddConvolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    const std::string number = std::to_string(convs_.size() + 1);
    convs_.push_back(register_module("conv" + number, Convolution(in, out, kernel, stride)));
    norms_.push_back(register_module("bn" + number, nn::BatchNorm2d(out)));
  }
  at::Tensor ShortcutOf(const at::Tensor& x) {
    if (zero_pad_) return zero_pad_->forward(x);
    return projection_ ? projection_->forward(x) : x;
  }

  std::vector<nn::Conv2d> convs_;
  std::vector<nn::BatchNorm2d> norms_;
  ZeroPadShortcut zero_pad_ = nullptr;
  ProjectionShortcut projection_ = nullptr;
};
TORCH_MODULE(ResidualBlock);

class ResNet : public Model {
 public:
  ResNet(const ResNetShape& shape, const ModelOptions& options)
      : pool_(shape.stem == Stem::kImageNet),
        conv1_(register_module("conv1", pool_ ? Convolution(options.channels, shape.width, 7, 2)
                                              : Convolution(options.channels, shape.width, 3))),
        bn1_(register_module("bn1", nn::BatchNorm2d(shape.width))) {
    int64_t channels = shape.width;
    int64_t width = shape.width;
    for (size_t stage = 0; stage < shape.blocks.size(); ++stage, width *= 2) {
      nn::Sequential blocks;
      for (int64_t block = 0; block < shape.blocks[stage]; ++block) {
        const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        blocks->push_back(ResidualBlock(channels, width, stride, shape));
        channels = shape.bottleneck ? 4 * width : width;
      }
      stages_.push_back(
          register_module("layer" + std::to_string(stage + 1), std::move(blocks)));
    }
    fc_ = register_module("fc", nn::Linear(channels, options.classes));
  }

  at::Tensor Forward(const at::Tensor& images) override {
    at::Tensor x = images.contiguous(at::MemoryFormat::ChannelsLast);
    x = bn1_->forward(conv1_->forward(x)).relu_();
    if (pool_) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    for (auto& stage : stages_) x = stage->forward(x);
    return fc_->forward(x.mean({2, 3}));
  }

 private:
  bool pool_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  std::vector<nn::Sequential> stages_;
  nn::Linear fc_ = nullptr;
};

}  // namespace

ResNetShape CifarResNet(int64_t blocks_per_stage) {
  return {.blocks = {blocks_per_stage, blocks_per_stage, blocks_per_stage}};
}

ResNetShape ImageNetResNet(int layers, Stem stem) {
  ResNetShape shape{.blocks = {3, 4, 6, 3},
                    .width = 64,
                    .bottleneck = layers >= 50,
                    .shortcut = Shortcut::kProjection,
                    .stem = stem};
  if (layers == 18) shape.blocks = {2, 2, 2, 2};
  return shape;
}

std::shared_ptr<Model> MakeResNet(const ResNetShape& shape, const ModelOptions& options) {
  return std::make_shared<ResNet>(shape, options);
}

}  // namespace elastiquant
