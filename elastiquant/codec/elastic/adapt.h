// Levels that follow the gradients during training: ALQ and AMQ (Faghri et al., "Adaptive
// Gradient Quantization for Data-Parallel SGD", NeurIPS 2020). Codecs never change; adapting
// one gives the spec of another. Frames tell their levels, so every worker may adapt on its
// own, at its own time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/magnitude_model.h"

namespace elastiquant {

// Whether AdaptSpec can do something for the codec: `alq` and `amq`, whatever modifiers follow.
bool IsAdaptive(const Codec& codec);

// The codec's spec with its levels (alq) or its p (amq) fitted to `gradients`: whole messages
// as the codec encodes them, about ten of recent steps. The same spec if all of them are zero.
// kInvalidArgument if the codec is not adaptive. Allocates, and takes a few milliseconds at 3
// and 4 bits, some seconds at 8; for now and then.
Result<std::string> AdaptSpec(const Codec& codec,
                              std::span<const std::span<const float>> gradients);

// The paper's steps to adapt at: 100, 2000, and then every 10000th.
constexpr bool IsAdaptationStep(uint64_t step) {
  return step == 100 || step == 2000 || (step > 0 && step % 10000 == 0);
}

// What is behind it.

// E (l_(j+1) - r)(r - l_j) over the magnitudes r, for levels from 0 to 1.
double LevelObjective(const MagnitudeModel& model, std::span<const double> levels);
// The level between a and c that makes it least: F(l) = F(c) - integral (r - a)/(c - a) dF.
double BestLevel(const MagnitudeModel& model, double a, double c);
// ALQ: sweeps of BestLevel from three starts (quantiles, uniform, powers of 1/2), the best of
// which is taken. `inner` levels between 0 and 1; 0 and 1 are among the result.
std::vector<double> FitLevels(const MagnitudeModel& model, size_t inner);

// The same with the levels +-p^j, j = 0 ... last, and none at 0; and its derivative by p.
double RatioObjective(const MagnitudeModel& model, size_t last, double p);
double RatioDerivative(const MagnitudeModel& model, size_t last, double p);
// AMQ: descends from the paper's starts and from `previous`.
double FitRatio(const MagnitudeModel& model, size_t last, double previous);

}  // namespace elastiquant
