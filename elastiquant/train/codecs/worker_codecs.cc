#include "elastiquant/train/codecs/worker_codecs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace elastiquant {

Result<std::unique_ptr<WorkerCodecs>> WorkerCodecs::Make(const WorkerCodecsOptions& options) {
  return options.bits_policy.empty() ? MakeSparsityCodecs(options) : MakeBitCodecs(options);
}

float Sendable(double value) {
  // Sums of products of so many floats are finite too.
  constexpr double kMost = 1e30;
  return std::isnan(value) ? 0 : static_cast<float>(std::clamp(value, -kMost, kMost));
}

std::vector<double> SharesOf(std::span<const double> volumes) {
  const double sum = std::accumulate(volumes.begin(), volumes.end(), 0.0);
  std::vector<double> shares(volumes.begin(), volumes.end());
  for (double& share : shares) share /= sum;
  return shares;
}

}  // namespace elastiquant
