// How much each worker sends of its update, by how much data it has: the ratios and thresholds
// of DAGC (Lu et al., "Data-Aware Gradient Compression for FL in Communication-Constrained
// Mobile Computing", IEEE TMC 2024, arXiv 2311.07324), beside the same ratio for all.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant::policy {

enum class RatioRule : uint8_t {
  kUniform,    // the same ratio for all
  kPublished,  // DAGC-R as its authors' code has it
  kMonotone,   // proportional to a power of the volume
};

// Takes "uniform", "published" or "monotone". Fails with kInvalidArgument, which lists them.
Result<RatioRule> ParseRatioRule(std::string_view text);
std::string_view RatioRuleName(RatioRule rule);

// What DAGC derives for error feedback under a drifting gradient: what is remembered then grows
// like 1 / ratio, and sum p^2 / ratio^2 under a fixed sum of ratios is least at p^(2/3).
inline constexpr double kDagcExponent = 2.0 / 3;

// Returns for each worker which share of its coordinates to send, in (0, 1], in the order of
// `volumes`: the worker's number of samples, or any other measure of its share in the mean.
// Only their proportions count. `mean_ratio`, in (0, 1], is the mean of the result. The result
// is the same on all workers of one build; its last bits may depend on the machine's `pow`.
//
// kPublished sorts the workers by volume and gives all of them p^(2/3) but one, which gets as
// little as the smallest other. Of all workers the authors' code picks the one for which
// (1 + Q) (p_j + p_m Q) is least, where m is the smallest other worker and Q the sum of the
// others' p^(2/3) over its own; for skewed volumes that is one in the middle, so that the
// ratios are not monotone. A ratio beyond 1 becomes 1 and the others get nothing of what is
// left over, so the mean may fall short. `exponent` must be kDagcExponent. kMonotone gives
// p^exponent with exponent >= 0. No ratio exceeds 1: what is left over goes to the others in
// the same proportions, and the mean is kept.
//
// Fails with kInvalidArgument if there are no volumes, if one of them is not positive and
// finite, or if the ratio or the exponent is out of its range.
Result<std::vector<double>> WorkerRatios(RatioRule rule, double mean_ratio,
                                         std::span<const double> volumes,
                                         double exponent = kDagcExponent);

// Returns for each worker which magnitude a coordinate must have to be sent, relative to a
// common threshold (DAGC-A): mean(p^exponent) / p^exponent, so that workers with more data send
// more. The errors are those of WorkerRatios.
Result<std::vector<double>> RelativeThresholds(std::span<const double> volumes,
                                               double exponent = kDagcExponent);

}  // namespace elastiquant::policy
