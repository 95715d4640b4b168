// The median of measured seconds and ratios.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace elastiquant {

// Returns the median of at least one value: of an even number, the mean of the two in the
// middle.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace elastiquant
