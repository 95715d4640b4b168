// The variance of the elastic quantiser on one given vector, without drawing anything.
#pragma once

#include <span>

#include "elastiquant/codec/elastic/elastic_format.h"

namespace elastiquant::theory {

// E|Q(v)-v|^2 / |v|^2 of the codec with this format: for each bucket with norm N, the sum of
// N^2 (high - r)(r - low) over its coordinates, r = |v_i|/N lying between the levels low and
// high; under dither N^2 step^2 / 12 a coordinate. Norms are those that the codec sends, fp32
// and rounded up. 0 if v is zero. format.levels must be those of a message of this length (they
// are unless p=auto goes with bucket=0). Values are finite, norms within fp32.
double ExactNmse(const ElasticFormat& format, std::span<const float> v);

}  // namespace elastiquant::theory
