#include "elastiquant/data/dirichlet.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "elastiquant/base/power.h"

namespace elastiquant {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// Random numbers drawn one after the other. Only operations that IEEE 754 rounds correctly are
// used, so that they are the same on every machine.
class GammaDraws {
 public:
  explicit GammaDraws(StreamKey key) : keys_(MakeLaneKeys(key)) {}

  double LogGamma(double alpha) {
    if (alpha >= 1) return LogGammaFromOne(alpha);
    // Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha).
    const double whole = LogGammaFromOne(alpha + 1);
    return whole + PortableLog2(Uniform()) / alpha;
  }

 private:
  // In (0, 1).
  double Uniform() { return (RandomBits(keys_, counter_++) + 0.5) * 0x1p-32; }

  // Marsaglia's polar method.
  double Normal() {
    while (true) {
      const double x = 2 * Uniform() - 1, y = 2 * Uniform() - 1;
      const double square = x * x + y * y;
      if (square >= 1 || square == 0) continue;
      return x * std::sqrt(-2 * kLn2 * PortableLog2(square) / square);
    }
  }

  // Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 2000, for
  // alpha >= 1.
  double LogGammaFromOne(double alpha) {
    const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = Normal(), root = 1 + c * x;
      if (root <= 0) continue;
      const double v = root * root * root, log_v = PortableLog2(v);
      const double limit = x * x / 2 + d * (1 - v + kLn2 * log_v);
      if (kLn2 * PortableLog2(Uniform()) < limit) return PortableLog2(d) + log_v;
    }
  }

  LaneKeys keys_;
  uint32_t counter_ = 0;
};

}  // namespace

std::vector<double> DrawLogGammas(StreamKey key, double alpha, size_t count) {
  GammaDraws draws(key);
  std::vector<double> logs(count);
  for (double& log : logs) log = draws.LogGamma(alpha);
  return logs;
}

double LogOfSum(const std::vector<double>& logs) {
  const double largest = *std::ranges::max_element(logs);
  double sum = 0;
  for (const double log : logs) sum += PortableExp2(log - largest);
  return largest + PortableLog2(sum);
}

}  // namespace elastiquant
