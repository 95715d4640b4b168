#include "elastiquant/theory/worst_vector.h"

#include <algorithm>
#include <cmath>

#include "elastiquant/theory/level_search.h"
#include "elastiquant/theory/search.h"

namespace elastiquant::theory {
namespace {

struct Problem {
  const LevelSet& levels;
  double d, q;

  double Variance(double r) const { return RoundingVariance(IntervalOf(levels, r), r); }

  WorstVector Vector(double large_count, double large, double small) const {
    const double rest = d - large_count;
    const double variance = large_count * Variance(large) + rest * Variance(small);
    const double size = large_count * large * large + rest * small * small;
    return {d, large, small, large_count, variance / size};
  }
  // The others have what the norm leaves; nothing if it leaves less than nothing.
  WorstVector WithLarge(double count, double large) const {
    const double left = 1 - count * std::pow(large, q);
    if (left < 0 || count >= d) return {};
    const double small = std::pow(left / (d - count), 1 / q);
    return Vector(count, large, small);
  }
  WorstVector WithSmall(double count, double small) const {
    const double left = 1 - (d - count) * std::pow(small, q);
    if (left <= 0) return {};
    return Vector(count, std::min(1.0, std::pow(left / count, 1 / q)), small);
  }
};

void KeepBetter(const WorstVector& candidate, WorstVector* best) {
  if (candidate.variance > best->variance) *best = candidate;
}

// Below `most`: all of the first forty, then some 10 % apart.
std::vector<double> Counts(double most) {
  std::vector<double> counts;
  for (double n = 1; n < most; n = n < 40 ? n + 1 : std::floor(n * 1.1)) counts.push_back(n);
  return counts;
}

// Under the largest norm, a coordinate of 1 takes care of the norm, and the others are free.
WorstVector WorstOfLargestNorm(const Problem& problem) {
  WorstVector best = problem.Vector(1, 1, 0);
  const auto negative = [&](double r) { return -problem.Vector(1, 1, r).variance; };
  for (size_t j = 0; j + 1 < problem.levels.count; ++j) {
    const double low = problem.levels.values[j], high = problem.levels.values[j + 1];
    const double r = GoldenSection(negative, low, high).at;
    KeepBetter(problem.Vector(1, 1, r), &best);
  }
  return best;
}

// Which of the two magnitudes is chosen; the other follows from the norm.
enum class Chosen { kLarge, kSmall };

struct Choice {
  Chosen chosen = Chosen::kLarge;
  double count = 1;
  Interval interval;
};

WorstVector Make(const Problem& problem, const Choice& choice, double magnitude) {
  return choice.chosen == Chosen::kLarge ? problem.WithLarge(choice.count, magnitude)
                                         : problem.WithSmall(choice.count, magnitude);
}

// Where to look between two levels. Variance is largest in the middle, and largest for its
// square at the levels' harmonic mean; a level itself lies at the end of the others' reach. The
// harmonic mean of the lowest levels being 0, small ones of any order are of use there.
std::vector<double> Magnitudes(double low, double high) {
  if (low > 0) {
    return {2 * low * high / (low + high), (3 * low + high) / 4, (low + high) / 2,
            (low + 3 * high) / 4, high};
  }
  std::vector<double> magnitudes;
  for (double r = high; r > high * 1e-4; r *= 0.8) magnitudes.push_back(r);
  return magnitudes;
}

struct Found {
  Choice choice;
  WorstVector vector;
};

void TryInterval(const Problem& problem, const Interval& interval,
                 const std::vector<double>& counts, Found* best) {
  for (const double r : Magnitudes(interval.low, interval.high)) {
    for (const double count : counts) {
      for (const Chosen chosen : {Chosen::kLarge, Chosen::kSmall}) {
        const Choice choice{chosen, count, interval};
        const WorstVector vector = Make(problem, choice, r);
        if (vector.variance > best->vector.variance) *best = {choice, vector};
      }
    }
  }
}

WorstVector SearchTwoMagnitudes(const Problem& problem) {
  Found best;
  best.vector = problem.WithLarge(1, std::pow(problem.d, -1 / problem.q));  // all alike
  // Or as different as can be, which is no interval's where 1 is the only level.
  KeepBetter(problem.WithLarge(1, 1), &best.vector);
  const std::vector<double> counts = Counts(problem.d);
  for (size_t j = 0; j + 1 < problem.levels.count; ++j) {
    TryInterval(problem, {j, problem.levels.values[j], problem.levels.values[j + 1]}, counts,
                &best);
  }
  const auto negative = [&](double r) { return -Make(problem, best.choice, r).variance; };
  const Interval& interval = best.choice.interval;
  const double r = GoldenSection(negative, interval.low, interval.high).at;
  KeepBetter(Make(problem, best.choice, r), &best.vector);
  return best.vector;
}

}  // namespace

std::vector<float> WorstVector::Values() const {
  std::vector<float> values(static_cast<size_t>(d), static_cast<float>(small));
  std::fill_n(values.begin(), static_cast<size_t>(large_count), static_cast<float>(large));
  return values;
}

WorstVector FindWorstVector(const LevelSet& levels, double d, double q) {
  const Problem problem{levels, d, q};
  if (d <= 1) return problem.Vector(1, 1, 0);
  if (std::isinf(q)) return WorstOfLargestNorm(problem);
  return SearchTwoMagnitudes(problem);
}

}  // namespace elastiquant::theory
