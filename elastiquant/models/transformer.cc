#include "elastiquant/models/transformer.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/models/init.h"

namespace elastiquant {
namespace {

namespace nn = torch::nn;

constexpr int64_t kBytes = 256;  // that a byte can be

struct Size {
  int64_t layers, width, heads;
};

Result<Size> SizeOf(const std::map<std::string, int64_t>& parameters, const std::string& name) {
  const Size size{parameters.at("layers"), parameters.at("width"), parameters.at("heads")};
  if (size.width % size.heads != 0) {
    return InvalidArgument("model " + name + ": its width of " + std::to_string(size.width) +
                           " is not a multiple of its " + std::to_string(size.heads) +
                           " heads");
  }
  return size;
}

nn::LayerNorm Norm(int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

class Attention : public nn::Module {
 public:
  Attention(const Size& size, bool causal)
      : heads_(size.heads),
        causal_(causal),
        in_(register_module("c_attn", nn::Linear(size.width, 3 * size.width))),
        out_(register_module("c_proj", nn::Linear(size.width, size.width))) {}

  at::Tensor Forward(const at::Tensor& x) {
    const auto parts = in_->forward(x).chunk(3, -1);
    const auto by_head = [&](const at::Tensor& t) {
      return t.unflatten(-1, {heads_, -1}).transpose(1, 2);
    };
    const at::Tensor seen = at::scaled_dot_product_attention(
        by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), /*attn_mask=*/{},
        /*dropout_p=*/0, causal_);
    return out_->forward(seen.transpose(1, 2).flatten(2));
  }

 private:
  const int64_t heads_;
  const bool causal_;
  nn::Linear in_, out_;
};

class FeedForward : public nn::Module {
 public:
  explicit FeedForward(int64_t width)
      : in_(register_module("c_fc", nn::Linear(width, 4 * width))),
        out_(register_module("c_proj", nn::Linear(4 * width, width))) {}

  at::Tensor Forward(const at::Tensor& x) { return out_->forward(at::gelu(in_->forward(x))); }

 private:
  nn::Linear in_, out_;
};

class Block : public nn::Module {
 public:
  Block(const Size& size, bool causal)
      : norm1_(register_module("ln_1", Norm(size.width))),
        attention_(register_module("attn", std::make_shared<Attention>(size, causal))),
        norm2_(register_module("ln_2", Norm(size.width))),
        mlp_(register_module("mlp", std::make_shared<FeedForward>(size.width))) {}

  at::Tensor Forward(at::Tensor x) {
    x = x + attention_->Forward(norm1_->forward(x));
    return x + mlp_->Forward(norm2_->forward(x));
  }

 private:
  nn::LayerNorm norm1_;
  std::shared_ptr<Attention> attention_;
  nn::LayerNorm norm2_;
  std::shared_ptr<FeedForward> mlp_;
};

// Blocks under the name "h", as members of whatever has them.
std::vector<std::shared_ptr<Block>> AddBlocks(nn::Module& parent, const Size& size,
                                              bool causal) {
  nn::ModuleList list;
  std::vector<std::shared_ptr<Block>> blocks;
  for (int64_t l = 0; l < size.layers; ++l) {
    blocks.push_back(std::make_shared<Block>(size, causal));
    list->push_back(blocks.back());
  }
  parent.register_module("h", list);
  return blocks;
}

// What lies between GPT's tokens and its head.
class Trunk : public nn::Module {
 public:
  Trunk(const Size& size, int64_t context)
      : tokens_(register_module("wte", nn::Embedding(kBytes, size.width))),
        places_(register_module("wpe", nn::Embedding(context, size.width))),
        blocks_(AddBlocks(*this, size, /*causal=*/true)),
        norm_(register_module("ln_f", Norm(size.width))) {}

  at::Tensor Forward(const at::Tensor& tokens) {
    at::Tensor x = tokens_->forward(tokens) + places_->weight.narrow(0, 0, tokens.size(1));
    for (const auto& block : blocks_) x = block->Forward(x);
    return norm_->forward(x);
  }

 private:
  nn::Embedding tokens_, places_;
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::LayerNorm norm_;
};

class Gpt : public Model {
 public:
  Gpt(const Size& size, int64_t context)
      : layers_(size.layers),
        trunk_(register_module("transformer", std::make_shared<Trunk>(size, context))),
        head_(register_module("lm_head",
                              nn::Linear(nn::LinearOptions(size.width, kBytes).bias(false)))) {}

  at::Tensor Forward(const at::Tensor& inputs) override {
    const at::Tensor tokens = inputs.narrow(1, 0, inputs.size(1) - 1).to(at::kLong);
    return head_->forward(trunk_->Forward(tokens)).flatten(0, 1);
  }
  at::Tensor Targets(const at::Tensor& inputs, const at::Tensor&) const override {
    return inputs.narrow(1, 1, inputs.size(1) - 1).to(at::kLong).flatten();
  }
  void Initialise(uint64_t seed) override { InitialiseTransformer(*this, layers_, seed); }

 private:
  const int64_t layers_;
  std::shared_ptr<Trunk> trunk_;
  nn::Linear head_;
};

class Vit : public Model {
 public:
  Vit(const Size& size, int64_t patch, const ModelOptions& options)
      : layers_(size.layers),
        patches_(register_module(
            "patches",
            nn::Conv2d(nn::Conv2dOptions(options.channels, size.width, patch).stride(patch)))),
        places_(register_module("places", nn::Embedding(Patches(options, patch), size.width))),
        blocks_(AddBlocks(*this, size, /*causal=*/false)),
        norm_(register_module("ln_f", Norm(size.width))),
        head_(register_module("head", nn::Linear(size.width, options.classes))) {}

  at::Tensor Forward(const at::Tensor& images) override {
    at::Tensor x = patches_->forward(images.contiguous()).flatten(2).transpose(1, 2);
    x = x + places_->weight;
    for (const auto& block : blocks_) x = block->Forward(x);
    return head_->forward(norm_->forward(x).mean(1));
  }
  void Initialise(uint64_t seed) override { InitialiseTransformer(*this, layers_, seed); }

 private:
  static int64_t Patches(const ModelOptions& options, int64_t patch) {
    return (options.image_size / patch) * (options.image_size / patch);
  }

  const int64_t layers_;
  nn::Conv2d patches_;
  nn::Embedding places_;
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

}  // namespace

Result<std::shared_ptr<Model>> MakeGpt(const ModelSpec& spec) {
  EQ_ASSIGN_OR_RETURN(
      const auto parameters,
      WithDefaults(
          spec, {{"layers", 4}, {"width", 128}, {"heads", 4}, {"context", kDefaultContext}}));
  EQ_ASSIGN_OR_RETURN(const Size size, SizeOf(parameters, spec.name));
  return std::shared_ptr<Model>(std::make_shared<Gpt>(size, parameters.at("context")));
}

Result<std::shared_ptr<Model>> MakeVit(const ModelSpec& spec, const ModelOptions& options) {
  EQ_ASSIGN_OR_RETURN(
      const auto parameters,
      WithDefaults(spec, {{"layers", 6}, {"width", 128}, {"heads", 4}, {"patch", 4}}));
  EQ_ASSIGN_OR_RETURN(const Size size, SizeOf(parameters, spec.name));
  const int64_t patch = parameters.at("patch");
  if (options.image_size % patch != 0) {
    return InvalidArgument("model " + spec.name + ": images of " +
                           std::to_string(options.image_size) +
                           " pixels cannot be cut into patches of " + std::to_string(patch));
  }
  return std::shared_ptr<Model>(std::make_shared<Vit>(size, patch, options));
}

}  // namespace elastiquant
