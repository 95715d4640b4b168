#include "elastiquant/theory/level_search.h"

#include <algorithm>

namespace elastiquant::theory {

Interval IntervalOf(const LevelSet& levels, double r) {
  const auto values = levels.span();
  if (!levels.has_zero() && (r < values[0] || values.size() == 1)) {
    return {0, -values[0], values[0]};
  }
  // The first level above r, but never the lowest, and the last at most.
  const auto above = std::upper_bound(values.begin() + 1, values.end() - 1, r);
  return {static_cast<size_t>(above - values.begin()) - 1, *(above - 1), *above};
}

}  // namespace elastiquant::theory
