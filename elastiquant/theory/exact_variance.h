// Computes the variance of the elastic quantiser on one given vector, without drawing anything.
#pragma once

#include <span>

#include "elastiquant/codec/elastic/elastic_format.h"

namespace elastiquant::theory {

// Returns E|Q(v)-v|^2 / |v|^2 of the codec with this format, or 0 if v is zero. A bucket with
// norm N has the sum of N^2 (high - r)(r - low) over its coordinates, where r = |v_i|/N lies
// between the levels low and high; under dither it has N^2 step^2 / 12 for each coordinate.
// Norms are those that the codec sends, which are fp32 and rounded up. format.levels must be
// those of a message of this length (they are unless p=auto goes with bucket=0), and
// format.tensors is not looked at. Values must be finite, and norms within fp32.
double ExactNmse(const ElasticFormat& format, std::span<const float> v);

}  // namespace elastiquant::theory
