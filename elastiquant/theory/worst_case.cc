#include "elastiquant/theory/worst_case.h"

#include <algorithm>
#include <cmath>

#include "elastiquant/theory/search.h"

namespace elastiquant::theory {
namespace {

// (var(r) + mu (r^q - 1/d)) / r^2 between two levels, in t = 1/r:
//   sum t - 1 - product t^2 + mu t^(2-q).
struct Quotient {
  double sum;      // low + high
  double product;  // low high + mu / d
  double mu, q;

  double operator()(double t) const {
    const double powers = mu == 0 || std::isinf(q) ? 0 : mu * std::pow(t, 2 - q);
    return sum * t - 1 - product * t * t + powers;
  }
  // For q of 1, 2 and infinity the powers only add to the sum, or to nothing that depends on t.
  double Slope() const { return q == 1 ? sum + mu : sum; }
  bool is_quadratic() const { return q == 1 || q == 2 || std::isinf(q); }
  double Derivative(double t) const {
    return sum - 2 * product * t + mu * (2 - q) * std::pow(t, 1 - q);
  }
};

// The largest over 1/high <= t <= 1/low. The derivative changes sign from plus to minus once:
// for q <= 2 since the quotient is concave, for q > 2 right of where t^(q-1) times the
// derivative is largest, left of which there is at most a minimum.
double LargestBetween(double low, double high, double mu, double d, double q) {
  const Quotient f{low + high, low * high + mu / d, mu, q};
  const double first = 1 / high;
  const double vertex = f.Slope() / (2 * f.product);
  // f falls from sum + mu (2-q)+ over 2 product on, with product = mu/d if low is 0.
  double last = low > 0 ? 1 / low : std::max(first, 2 * vertex + d);
  // About zero without a level there the sum is 0, and where f begins to fall is known.
  if (low < 0 && q < 2) last = std::max(last, std::pow(mu * (2 - q) / (2 * f.product), 1 / q));
  if (f.is_quadratic()) return f(std::clamp(vertex, first, last));
  const double from = q < 2 ? first : std::clamp(vertex * (q - 1) / q, first, last);
  const double peak = Bisect([&](double t) { return f.Derivative(t); }, from, last);
  return std::max({f(first), f(peak), low > 0 ? f(last) : f(first)});
}

double Dual(const LevelSet& levels, double mu, double d, double q) {
  // At r = 1 nothing is rounded.
  double largest = mu * (1 - 1 / d);
  if (!levels.has_zero()) {
    const double first = levels.values[0];
    largest = std::max(largest, LargestBetween(-first, first, mu, d, q));
  }
  for (size_t j = 0; j + 1 < levels.count; ++j) {
    largest =
        std::max(largest, LargestBetween(levels.values[j], levels.values[j + 1], mu, d, q));
  }
  return largest;
}

template <typename F>
int LeastOf(const F& f, int first, int last, int step) {
  int best = first;
  double least = f(first);
  for (int x = first + step; x <= std::min(last, 999); x += step) {
    const double value = f(x);
    if (value >= least) continue;
    least = value;
    best = x;
  }
  return best;
}

}  // namespace

double WorstCaseVariance(const LevelSet& levels, double d, double q) {
  if (d <= 1) return 0;
  // Dual(mu) >= mu (1 - 1/d), and its least value is at most the bound.
  const double most = VarianceBound(levels, d, q) / (1 - 1 / d);
  const auto dual = [&](double log_mu) { return Dual(levels, std::exp(log_mu), d, q); };
  // Without zero a coordinate of 0 costs l_0^2, which mu / d must make up for.
  const double around = levels.values[0];
  const double least = std::max(most * 1e-12, d * around * around * (1 + 1e-9));
  return GoldenSection(dual, std::log(least), std::log(std::max(most, least))).value;
}

float ExactOptimalRatio(int bits, double d, double q) {
  if (InnerLevels(bits) == 0) return 0.5f;  // the levels are 0 and 1 whatever p is
  const auto variance = [&](int thousandths) {
    const auto levels = ExponentialLevels(bits, static_cast<float>(thousandths) / 1000);
    // INFINITY where fp32 cannot tell them apart.
    return levels.ok() ? WorstCaseVariance(*levels, d, q) : INFINITY;
  };
  constexpr int kCoarse = 20;
  const int near = LeastOf(variance, kCoarse, 999, kCoarse);
  const int best = LeastOf(variance, std::max(1, near - kCoarse), near + kCoarse, 1);
  return static_cast<float>(best) / 1000;
}

}  // namespace elastiquant::theory
