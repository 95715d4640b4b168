#include "elastiquant/codec/levels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "elastiquant/base/power.h"

namespace elastiquant {
namespace {

constexpr float kSmallestGap = std::numeric_limits<float>::min();  // 2^-126, the least normal

// p^k, by multiplications only.
double Power(double p, int k) {
  double power = 1;
  for (; k > 0; k >>= 1, p *= p) {
    if (k & 1) power *= p;
  }
  return power;
}

// What is between two levels of this ratio, relative to its square.
double BetweenLevels(double ratio) { return (ratio - 1) * (ratio - 1) / (4 * ratio); }

double ExponentialBound(double p, int inner, double d, double q) {
  return VarianceBound(Power(p, inner), 1 / p, d, q);
}

Status CheckLevels(const LevelSet& levels) {
  if (!(levels.values[0] == 0 || levels.values[0] >= kSmallestGap)) {
    return InvalidArgument("the first level of a set without zero must be at least 2^-126");
  }
  for (size_t j = 1; j < levels.count; ++j) {
    // Written so that NaN fails.
    if (!(levels.values[j] - levels.values[j - 1] >= kSmallestGap)) {
      return InvalidArgument("levels must increase in steps of at least 2^-126, but level " +
                             std::to_string(j) + " does not");
    }
  }
  if (levels.values[levels.count - 1] != 1) return InvalidArgument("the last level must be 1");
  return Status::Ok();
}

}  // namespace

LevelSet UniformLevels(int bits) {
  LevelSet levels;
  levels.count = LevelsOfBits(bits);
  const float steps = static_cast<float>(levels.count - 1);
  for (size_t j = 0; j < levels.count; ++j) levels.values[j] = static_cast<float>(j) / steps;
  return levels;
}

Result<LevelSet> ExponentialLevels(int bits, float p) {
  if (!(p > 0 && p < 1)) return InvalidArgument("p must be between 0 and 1, both excluded");
  LevelSet levels;
  levels.count = LevelsOfBits(bits);
  double level = 1;
  for (size_t j = levels.count - 1; j > 0; --j, level *= static_cast<double>(p)) {
    levels.values[j] = static_cast<float>(level);
  }
  if (!CheckLevels(levels).ok()) {
    return InvalidArgument("p=" + std::to_string(p) + " with " + std::to_string(bits) +
                           " bits gives levels that fp32 cannot tell apart: move p towards .5 "
                           "or take fewer bits");
  }
  return levels;
}

Result<LevelSet> ExplicitLevels(int bits, std::span<const float> upper) {
  if (upper.empty() || upper.size() + 1 > LevelsOfBits(bits)) {
    return InvalidArgument(std::to_string(bits) + " bits take 1 to " +
                           std::to_string(LevelsOfBits(bits) - 1) +
                           " levels above 0, but the list has " + std::to_string(upper.size()));
  }
  LevelSet levels;
  levels.count = upper.size() + 1;
  std::copy(upper.begin(), upper.end(), levels.values.begin() + 1);
  EQ_RETURN_IF_ERROR(CheckLevels(levels));
  return levels;
}

Result<LevelSet> LevelsWithoutZero(int bits, std::span<const float> levels) {
  if (levels.empty() || levels.size() > LevelsOfBits(bits)) {
    return InvalidArgument(
        std::to_string(bits) + " bits take 1 to " + std::to_string(LevelsOfBits(bits)) +
        " levels above 0 and none at 0, but the list has " + std::to_string(levels.size()));
  }
  LevelSet set;
  set.count = levels.size();
  std::copy(levels.begin(), levels.end(), set.values.begin());
  if (!(set.values[0] > 0)) return InvalidArgument("a set without zero begins above 0");
  EQ_RETURN_IF_ERROR(CheckLevels(set));
  return set;
}

double VarianceBound(double smallest, double largest_ratio, double d, double q) {
  const double m = std::min(q, 2.0);
  const double reach = smallest * (m == 2 ? std::sqrt(d) : PortablePow(d, 1 / m));
  return BetweenLevels(largest_ratio) + (reach < 2 ? reach * reach / 4 : reach - 1);
}

double GridVarianceBound(double widest_gap, double d, double q) {
  const double stretch = q < 2 ? PortablePow(d, 2 / q - 1) : 1;
  return d * stretch * widest_gap * widest_gap / 4;
}

double VarianceBound(const LevelSet& levels, double d, double q) {
  const double ratio = LargestRatio(levels);
  const double relative =
      levels.has_zero()
          ? VarianceBound(levels.values[1], ratio, d, q)
          : BetweenLevels(ratio) + GridVarianceBound(2.0 * levels.values[0], d, q);
  return std::min(relative, GridVarianceBound(WidestGap(levels), d, q));
}

double LargestRatio(const LevelSet& levels) {
  double ratio = 1;
  for (size_t j = levels.has_zero() ? 1 : 0; j + 1 < levels.count; ++j) {
    ratio = std::max(ratio, static_cast<double>(levels.values[j + 1]) / levels.values[j]);
  }
  return ratio;
}

double WidestGap(const LevelSet& levels) {
  double gap = 2.0 * levels.values[0];
  for (size_t j = 0; j + 1 < levels.count; ++j) {
    gap = std::max(gap, static_cast<double>(levels.values[j + 1]) - levels.values[j]);
  }
  return gap;
}

float OptimalRatio(int inner, double d, double q) {
  if (inner == 0) return 0.5f;  // the levels are 0 and 1 whatever p is
  const auto bound = [&](int thousandths) {
    return ExponentialBound(thousandths / 1000.0, inner, d, q);
  };
  // Convex in p: the least p from which on the bound grows.
  int low = 1, high = 999;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (bound(middle) <= bound(middle + 1)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return static_cast<float>(low) / 1000;
}

}  // namespace elastiquant
