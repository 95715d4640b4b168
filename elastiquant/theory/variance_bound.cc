#include "elastiquant/theory/variance_bound.h"

#include <algorithm>
#include <cmath>

#include "elastiquant/theory/search.h"

namespace elastiquant::theory {
namespace {

// d^(1/m), m = min(q, 2).
double Reach(double d, double q) { return std::pow(d, 1 / std::min(q, 2.0)); }

}  // namespace

VarianceTerms VarianceTermsOf(const LevelSet& levels, double d, double q) {
  VarianceTerms terms;
  const double smallest = levels.values[1];
  terms.ratio = LargestRatio(levels);
  terms.between = (terms.ratio - 1) * (terms.ratio - 1) / (4 * terms.ratio);
  terms.below = VarianceBound(smallest, 1, d, q);
  terms.grid = GridVarianceBound(WidestGap(levels), d, q);
  terms.crossover = std::pow(2 / smallest, std::min(q, 2.0));
  return terms;
}

double AlqVarianceBound(const LevelSet& levels, double d, double q) {
  const VarianceTerms terms = VarianceTermsOf(levels, d, q);
  const double reach = levels.values[1] * Reach(d, q);
  const auto logarithm = [&](double t) {
    const double u = 2 - t;
    const double k = t == 1 ? 0 : (1 - t) * std::log((1 - t) / u);
    return k - std::log(u) + u * std::log(reach);
  };
  const double inside = GoldenSection(logarithm, 0, 1).value;
  return terms.between + std::exp(std::min({inside, logarithm(0), logarithm(1)}));
}

double QsgdVarianceBound(int steps, double d) {
  const double s = steps;
  return std::min(d / (s * s), std::sqrt(d) / s);
}

double EqualVectorVariance(double smallest, double d, double q) {
  return std::max(0.0, smallest * std::pow(d, 1 / q) - 1);
}

}  // namespace elastiquant::theory
