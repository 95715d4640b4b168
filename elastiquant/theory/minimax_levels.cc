#include "elastiquant/theory/minimax_levels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "elastiquant/theory/search.h"
#include "elastiquant/theory/worst_case.h"

namespace elastiquant::theory {
namespace {

// The dual's constraint for given V and mu.
struct Constraint {
  double u, c, floor;  // floor: mu / d

  Constraint(double v, double mu, double d, double q)
      : u(q == 1 ? mu : 0), c(q == 2 ? 1 + v - mu : 1 + v), floor(mu / d) {}

  // The farthest level above `low`.
  double Next(double low) const {
    const double half = 2 * c * low - (low + u);
    return half + std::sqrt(std::max(0.0, half * half - (low + u) * (low + u) + 4 * c * floor));
  }
};

// Up to `count` levels from 0 up, each as far as may be, no more once they are well beyond 1.
std::vector<double> Grow(const Constraint& constraint, size_t count) {
  std::vector<double> levels = {0};
  while (levels.size() < count && levels.back() < 2) {
    levels.push_back(constraint.Next(levels.back()));
  }
  return levels;
}

// The least V whose levels reach 1, share being mu as a part of the most that it can be.
double LeastVariance(size_t count, double share, double d, double q) {
  const auto reach = [&](double log_v) {
    const double v = std::exp(log_v);
    const double mu = share * v * d / (d - 1);
    return Grow(Constraint(v, mu, d, q), count).back() >= 1 ? 1.0 : -1.0;
  };
  return std::exp(Bisect(reach, std::log(1e-9), std::log(16 * d)));
}

// The share of mu with the least V: a scan, as several minima cannot be ruled out, then its
// neighbourhood.
double BestShare(size_t count, double d, double q) {
  if (std::isinf(q)) return 1;
  const auto variance = [&](double log_share) {
    return LeastVariance(count, std::exp(log_share), d, q);
  };
  constexpr double kStep = 0.25;
  double best = 0, least = variance(0);
  for (double x = -kStep; x > -25; x -= kStep) {
    const double v = variance(x);
    if (v < least) {
      least = v;
      best = x;
    }
  }
  return std::exp(GoldenSection(variance, best - kStep, std::min(0.0, best + kStep)).at);
}

}  // namespace

Result<MinimaxLevels> FindMinimaxLevels(int bits, double d, double q) {
  if (q != 1 && q != 2 && !std::isinf(q)) {
    return InvalidArgument("minimax levels are known for norms l1, l2 and linf only");
  }
  if (bits < 2 || bits > 8 || !(d >= 2)) {
    return InvalidArgument("minimax levels need 2 to 8 bits and a bucket of at least 2");
  }
  const size_t count = LevelsOfBits(bits);
  const double share = BestShare(count, d, q);
  const double v = LeastVariance(count, share, d, q);
  const std::vector<double> grown = Grow(Constraint(v, share * v * d / (d - 1), d, q), count);
  std::vector<float> upper(grown.begin() + 1, grown.end());
  for (float& level : upper) level = static_cast<float>(level / grown.back());
  upper.back() = 1;
  MinimaxLevels found;
  EQ_ASSIGN_OR_RETURN(found.levels, ExplicitLevels(bits, upper));
  found.variance = WorstCaseVariance(found.levels, d, q);
  return found;
}

}  // namespace elastiquant::theory
