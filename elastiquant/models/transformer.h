// Transformers: a language model on bytes (GPT) and an image classifier (ViT), of the same
// blocks.
#pragma once

#include <cstdint>
#include <memory>

#include "elastiquant/base/status.h"
#include "elastiquant/models/model.h"
#include "elastiquant/models/model_spec.h"

namespace elastiquant {

// The parameters of a GPT that are not given in its spec: 4 layers, a width of 128, 4 heads and
// a context of 128 bytes.
inline constexpr int64_t kDefaultContext = 128;

// Makes "gpt:layers=4,width=128,heads=4,context=128", as Radford et al. ("Language Models are
// Unsupervised Multitask Learners", 2019) have it, over bytes and without weights in common:
// norms before attention and MLP, GELU, learnt positions. Its parameters have the names that
// nanoGPT gives them, such as "transformer.h.0.attn.c_attn.weight".
//
// Its inputs are fp32 [batch, bytes + 1] with values of 0 to 255. Its logits are [batch *
// bytes, 256], and its targets the bytes that come next. Fails with kInvalidArgument for
// parameters that are unknown or do not go together.
Result<std::shared_ptr<Model>> MakeGpt(const ModelSpec& spec);

// Makes "vit:layers=6,width=128,heads=4,patch=4", as Dosovitskiy et al. ("An Image is Worth
// 16x16 Words", ICLR 2021) have it, with the mean over all patches in place of a class token.
Result<std::shared_ptr<Model>> MakeVit(const ModelSpec& spec, const ModelOptions& options);

}  // namespace elastiquant
