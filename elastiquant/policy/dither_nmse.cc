#include "elastiquant/policy/dither_nmse.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "elastiquant/theory/rate_distortion.h"

namespace elastiquant::policy {
namespace {

constexpr double kCeiling = 32;
// The table is over log2 of the error. Below it a halving of the step is a bit; above it next
// to nothing is sent.
constexpr double kLow = -18, kHigh = 6, kPerOctave = 4;
constexpr size_t kPoints = static_cast<size_t>((kHigh - kLow) * kPerOctave) + 1;

// The integral takes milliseconds, and policies ask in every step.
const std::array<double, kPoints>& Table() {
  static const std::array<double, kPoints> table = [] {
    std::array<double, kPoints> bits;
    for (size_t i = 0; i < kPoints; ++i) {
      const double log2_error = kLow + static_cast<double>(i) / kPerOctave;
      bits[i] = theory::DitherBits(std::sqrt(12 * std::exp2(log2_error)));
    }
    return bits;
  }();
  return table;
}

// Cubic between the points, with the slopes of their neighbours (Catmull and Rom).
double BitsAt(double log2_error) {
  const auto& table = Table();
  if (log2_error <= kLow) return table.front() + (kLow - log2_error) / 2;
  if (log2_error >= kHigh) return table.back() * std::exp2((kHigh - log2_error) / 2);
  const double place = (log2_error - kLow) * kPerOctave;
  const size_t i = std::min(static_cast<size_t>(place), kPoints - 2);
  const double t = place - static_cast<double>(i), a = table[i], b = table[i + 1];
  const double before = i > 0 ? table[i - 1] : 2 * a - b;
  const double after = i + 2 < kPoints ? table[i + 2] : 2 * b - a;
  const double slope_a = (b - before) / 2, slope_b = (after - a) / 2;
  return (1 + 2 * t) * (1 - t) * (1 - t) * a + t * (1 - t) * (1 - t) * slope_a +
         t * t * (3 - 2 * t) * b - t * t * (1 - t) * slope_b;
}

}  // namespace

double DitherBitsFor(double nmse) {
  return nmse > 0 ? std::min(BitsAt(std::log2(nmse)), kCeiling) : kCeiling;
}

// The bits fall as the error grows.
double DitherNmse(double bits) {
  double low = -2 * kCeiling, high = 2 * kCeiling;
  while (high - low > 1e-7) {
    const double middle = (low + high) / 2;
    (BitsAt(middle) > bits ? low : high) = middle;
  }
  return std::exp2(high);
}

}  // namespace elastiquant::policy
