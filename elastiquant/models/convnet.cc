#include "elastiquant/models/convnet.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

namespace elastiquant {
namespace {

namespace nn = torch::nn;

// As published, the activation comes before the pooling. In this order the values and the
// gradients are the same, bit by bit, and the activation reads a quarter of the elements.
at::Tensor PoolAndRelu(const at::Tensor& x) { return at::max_pool2d(x, {2, 2}).relu_(); }

class Cnn3 : public Model {
 public:
  explicit Cnn3(const ModelOptions& options)
      : conv1_(register_module(
            "conv1", nn::Conv2d(nn::Conv2dOptions(options.channels, kWidth, kKernel)))),
        conv2_(
            register_module("conv2", nn::Conv2d(nn::Conv2dOptions(kWidth, kWidth, kKernel)))),
        fc1_(register_module("fc1", nn::Linear(Inputs(options.image_size), kHidden))),
        fc2_(register_module("fc2", nn::Linear(kHidden, options.classes))) {}

  at::Tensor Forward(const at::Tensor& images) override {
    at::Tensor x = images.contiguous(at::MemoryFormat::ChannelsLast);
    x = PoolAndRelu(conv1_->forward(x));
    x = PoolAndRelu(conv2_->forward(x));
    return fc2_->forward(fc1_->forward(x.contiguous().flatten(1)).relu_());
  }

 private:
  static constexpr int64_t kWidth = 32, kKernel = 5, kHidden = 256;

  static int64_t Inputs(int64_t image_size) {
    const auto after = [](int64_t side) { return (side - kKernel + 1) / 2; };
    const int64_t side = after(after(image_size));
    return kWidth * side * side;
  }

  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_;
};

class Vgg11 : public Model {
 public:
  explicit Vgg11(const ModelOptions& options) {
    int64_t channels = options.channels;
    for (const Layer& layer : kLayers) {
      const std::string number = std::to_string(convs_.size() + 1);
      const auto shape = nn::Conv2dOptions(channels, layer.width, 3).padding(1).bias(false);
      convs_.push_back(register_module("conv" + number, nn::Conv2d(shape)));
      norms_.push_back(register_module("bn" + number, nn::BatchNorm2d(layer.width)));
      channels = layer.width;
    }
    fc_ = register_module("fc", nn::Linear(channels, options.classes));
  }

  at::Tensor Forward(const at::Tensor& images) override {
    at::Tensor x = images.contiguous(at::MemoryFormat::ChannelsLast);
    for (size_t i = 0; i < convs_.size(); ++i) {
      if (kLayers[i].width == kLayers.back().width) x = InOrderOfWeights(x);
      x = norms_[i]->forward(convs_[i]->forward(x));
      x = kLayers[i].pools && x.size(2) > 1 ? PoolAndRelu(x) : x.relu_();
    }
    return fc_->forward(x.mean({2, 3}));
  }

 private:
  struct Layer {
    int64_t width;
    bool pools;
  };
  inline static const std::vector<Layer> kLayers = {{64, true},   {128, true},  {256, false},
                                                    {256, true},  {512, false}, {512, true},
                                                    {512, false}, {512, true}};

  // A convolution copies its weights into the order of its inputs, and their gradient back. The
  // widest layers, which are the last ones, have more weights than inputs: in fp32, computing
  // takes a fifth less time if their inputs are copied instead. Autocast to bf16 copies the
  // weights in any case.
  static at::Tensor InOrderOfWeights(const at::Tensor& x) {
    return at::autocast::is_autocast_enabled(at::kCPU) ? x : x.contiguous();
  }

  std::vector<nn::Conv2d> convs_;
  std::vector<nn::BatchNorm2d> norms_;
  nn::Linear fc_ = nullptr;
};

}  // namespace

std::shared_ptr<Model> MakeCnn3(const ModelOptions& options) {
  return std::make_shared<Cnn3>(options);
}

std::shared_ptr<Model> MakeVgg11(const ModelOptions& options) {
  return std::make_shared<Vgg11>(options);
}

}  // namespace elastiquant
