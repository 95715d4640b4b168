// Mixes vectors, as workers under gossip mix the models of their neighbours. Every target gives
// the same result to the bit.
#pragma once

#include <cstddef>
#include <span>

namespace elastiquant {

struct WeightedVector {
  double weight = 0;
  const float* values = nullptr;
};

// Sets out[i] to the float nearest to scale * (the sum of weight * values[i], in double
// precision, in the order of `inputs`) for all i below n. `out` may be one of the inputs.
void WeightedSum(std::span<const WeightedVector> inputs, double scale, size_t n, float* out);

}  // namespace elastiquant
