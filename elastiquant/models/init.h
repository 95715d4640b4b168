// Makes initial weights, which are the same on every machine.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

#include "elastiquant/base/random.h"

namespace elastiquant {

// Fills contiguous fp32 `values` with numbers of mean 0 and the given standard deviation: sums
// of twelve uniforms (Irwin-Hall), within 6 deviations. They are near enough to a Gaussian to
// start from, and made by exact arithmetic, so that no machine's libm shows in them.
void FillNormal(const at::Tensor& values, double deviation, StreamKey key);

// Fills `values` with numbers that are uniform in [-bound, bound).
void FillUniform(const at::Tensor& values, double bound, StreamKey key);

// Initialises every parameter of `module`. Convolutions are normal with variance 2 / fan-out
// (He et al. 2015, "Delving Deep into Rectifiers", eq. 14), their biases 0; linear layers are
// uniform within 1 / sqrt(inputs); norms have weight 1 and bias 0. Parameter number i draws
// from stream (seed, i).
void InitialiseWeights(const torch::nn::Module& module, uint64_t seed);

// Initialises every parameter of a transformer with `layers` blocks: linear layers and
// embeddings are normal with deviation .02, but .02 / sqrt(2 layers) where their result is
// added to what passes by them ("c_proj"); biases are 0 (Radford et al. 2019). Convolutions,
// which have patches as their inputs, are normal with variance 1 / fan-in.
void InitialiseTransformer(const torch::nn::Module& module, int64_t layers, uint64_t seed);

}  // namespace elastiquant
