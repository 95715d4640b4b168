// Levels that follow the gradients during training: ALQ and AMQ (Faghri et al., "Adaptive
// Gradient Quantization for Data-Parallel SGD", NeurIPS 2020). Codecs never change, so adapting
// one gives the spec of another. Frames tell their levels, so every worker may adapt on its
// own, and when it likes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/magnitude_model.h"

namespace elastiquant {

// Whether AdaptSpec can adapt the codec. It can adapt `alq` and `amq`, with |ef or |dgc after
// them, too.
bool IsAdaptive(const Codec& codec);

// Returns the codec's spec with its levels (alq) or its p (amq) fitted to `gradients`. These
// are whole messages of about ten recent steps, without what |ef or |dgc adds to them; if all
// of them are zero, the spec stays the same. Fails with kInvalidArgument if the codec is not
// adaptive. It allocates, and takes a few milliseconds at 3 and 4 bits and some seconds at 8,
// so call it only now and then.
Result<std::string> AdaptSpec(const Codec& codec,
                              std::span<const std::span<const float>> gradients);

// Whether the paper adapts at this step: it does at 100, at 2000, and then at every 10000th.
constexpr bool IsAdaptationStep(uint64_t step) {
  return step == 100 || step == 2000 || (step > 0 && step % 10000 == 0);
}

// The rest of this header is what AdaptSpec consists of.

// Returns E (l_(j+1) - r)(r - l_j) over the magnitudes r, for levels from 0 to 1.
double LevelObjective(const MagnitudeModel& model, std::span<const double> levels);
// Returns the level l between a and c that makes the objective least, which is where
// F(l) = F(c) - integral (r - a)/(c - a) dF.
double BestLevel(const MagnitudeModel& model, double a, double c);
// Fits the levels of ALQ. Sweeps of BestLevel begin at three places (quantiles, uniform levels
// and powers of 1/2), and the best result is taken. There are `inner` levels between 0 and 1,
// and 0 and 1 are among the result too.
std::vector<double> FitLevels(const MagnitudeModel& model, size_t inner);

// Return the same objective for the levels +-p^j, j = 0 ... last, of which none is 0, and its
// derivative by p.
double RatioObjective(const MagnitudeModel& model, size_t last, double p);
double RatioDerivative(const MagnitudeModel& model, size_t last, double p);
// Fits the p of AMQ: it descends from the starts of the paper and from `previous`.
double FitRatio(const MagnitudeModel& model, size_t last, double previous);

}  // namespace elastiquant
