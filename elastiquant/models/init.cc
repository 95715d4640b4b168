#include "elastiquant/models/init.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <span>

namespace elastiquant {
namespace {

std::span<float> Values(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

void FillNormal(const at::Tensor& tensor, double deviation, StreamKey key) {
  const LaneKeys keys = MakeLaneKeys(key);
  // Twelve uniforms on 0 ... 65535 have the sum's mean 12 * 32767.5 and variance 65536^2 - 1.
  const double scale = deviation / std::sqrt(65536.0 * 65536.0 - 1.0);
  uint32_t counter = 0;
  for (float& value : Values(tensor)) {
    int64_t sum = 0;
    for (int pair = 0; pair < 6; ++pair) {
      const uint32_t bits = RandomBits(keys, counter++);
      sum += (bits & 0xFFFFu) + (bits >> 16);
    }
    value = static_cast<float>(static_cast<double>(sum - 393210) * scale);
  }
}

void FillUniform(const at::Tensor& tensor, double bound, StreamKey key) {
  const LaneKeys keys = MakeLaneKeys(key);
  uint32_t counter = 0;
  for (float& value : Values(tensor)) {
    const double unit = static_cast<double>(UniformFloat(RandomBits(keys, counter++)));
    value = static_cast<float>((2.0 * unit - 1.0) * bound);
  }
}

void InitialiseWeights(const torch::nn::Module& root, uint64_t seed) {
  uint64_t parameter = 0;
  auto next_key = [&] { return DeriveKey(seed, 0, 0, parameter++); };
  for (const auto& module : root.modules()) {
    if (auto* conv = module->as<torch::nn::Conv2d>()) {
      const auto fan_out = conv->weight.numel() / conv->weight.size(1);
      FillNormal(conv->weight, std::sqrt(2.0 / static_cast<double>(fan_out)), next_key());
      if (conv->bias.defined()) conv->bias.data().zero_();
    } else if (auto* linear = module->as<torch::nn::Linear>()) {
      const double bound = 1.0 / std::sqrt(static_cast<double>(linear->weight.size(1)));
      FillUniform(linear->weight, bound, next_key());
      FillUniform(linear->bias, bound, next_key());
    } else if (auto* norm = module->as<torch::nn::BatchNorm2d>()) {
      norm->weight.data().fill_(1.0);
      norm->bias.data().zero_();
    }
  }
}

void InitialiseTransformer(const torch::nn::Module& root, int64_t layers, uint64_t seed) {
  constexpr double kDeviation = 0.02;
  const double added = kDeviation / std::sqrt(2.0 * static_cast<double>(layers));
  uint64_t parameter = 0;
  auto next_key = [&] { return DeriveKey(seed, 0, 0, parameter++); };
  for (const auto& item : root.named_modules()) {
    if (auto* linear = item.value()->as<torch::nn::Linear>()) {
      FillNormal(linear->weight, item.key().ends_with("c_proj") ? added : kDeviation,
                 next_key());
      if (linear->bias.defined()) linear->bias.data().zero_();
    } else if (auto* embedding = item.value()->as<torch::nn::Embedding>()) {
      FillNormal(embedding->weight, kDeviation, next_key());
    } else if (auto* conv = item.value()->as<torch::nn::Conv2d>()) {
      const auto fan_in = conv->weight.numel() / conv->weight.size(0);
      FillNormal(conv->weight, 1 / std::sqrt(static_cast<double>(fan_in)), next_key());
      conv->bias.data().zero_();
    } else if (auto* norm = item.value()->as<torch::nn::LayerNorm>()) {
      norm->weight.data().fill_(1.0);
      norm->bias.data().zero_();
    }
  }
}

}  // namespace elastiquant
