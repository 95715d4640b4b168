#include "elastiquant/codec/low_rank/water_filling.h"

#include <algorithm>

namespace elastiquant {

void WaterFill(std::span<const double> magnitudes, double budget,
               std::span<double> probabilities) {
  // First the sums from each magnitude to the last, smallest ones first.
  double sum = 0;
  for (size_t i = magnitudes.size(); i-- > 0;) {
    sum += magnitudes[i];
    probabilities[i] = sum;
  }
  size_t i = 0;
  for (; i < magnitudes.size(); ++i) {
    const double rest = probabilities[i];
    if (magnitudes[i] == 0 || magnitudes[i] * budget < rest) break;
    probabilities[i] = 1;
    budget -= 1;
  }
  const double rest = i < magnitudes.size() ? probabilities[i] : 0;
  for (; i < magnitudes.size(); ++i) {
    probabilities[i] = rest > 0 ? std::min(1.0, magnitudes[i] * budget / rest) : 0;
  }
}

}  // namespace elastiquant
