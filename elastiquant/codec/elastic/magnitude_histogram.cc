#include "elastiquant/codec/elastic/magnitude_histogram.h"

#include <algorithm>
#include <array>
#include <bit>

#include "elastiquant/kernels/scaler.h"

namespace elastiquant {
namespace {

constexpr int kShift = 23 - std::countr_zero(unsigned{MagnitudeHistogram::kBinsPerOctave});
constexpr uint32_t kFirstBits = (127u - MagnitudeHistogram::kOctaves) << 23;

// The bin of a float in [0, 1], which is kBins for 1 itself. All below the end of the first bin
// is in it.
uint32_t HistogramBin(float r) {
  constexpr float kFirst = std::bit_cast<float>(kFirstBits);
  return (std::bit_cast<uint32_t>(r > kFirst ? r : kFirst) - kFirstBits) >> kShift;
}

}  // namespace

MagnitudeHistogram::MagnitudeHistogram(std::span<uint8_t> scratch) {
  auto* doubles = reinterpret_cast<double*>(scratch.data());
  bins_ = {doubles, kBins + 1};
  mass_ = {doubles + kBins + 1, kBins + 1};
  first_ = {mass_.data() + kBins + 1, kBins + 1};
  second_ = {first_.data() + kBins + 1, kBins + 1};
  std::ranges::fill(bins_, 0.0);
}

void MagnitudeHistogram::Add(std::span<const float> values, float norm, double weight) {
  const Scaler scaler = MakeScaler(norm, 1);
  // The bins of many values are computed in a loop of their own, which the compiler vectorises.
  std::array<uint32_t, 64> bin;
  for (; !values.empty(); values = values.subspan(std::min(values.size(), bin.size()))) {
    const size_t count = std::min(values.size(), bin.size());
    for (size_t i = 0; i < count; ++i) bin[i] = HistogramBin(ScaledSize(scaler, values[i]));
    for (size_t i = 0; i < count; ++i) bins_[bin[i]] += weight;
  }
}

double MagnitudeHistogram::mass() const {
  double sum = 0;
  for (const double bin : bins_.first(kBins)) sum += bin;
  return sum;
}

double MagnitudeHistogram::Edge(size_t bin) {
  if (bin == 0) return 0;
  return std::bit_cast<float>(kFirstBits + (static_cast<uint32_t>(bin) << kShift));
}

void MagnitudeHistogram::Finish() {
  const double even = mass() * 0x1p-24;
  Moments sum;
  mass_[0] = first_[0] = second_[0] = 0;
  for (size_t bin = 0; bin < kBins; ++bin) {
    const double low = Edge(bin), high = Edge(bin + 1);
    const double mass = bins_[bin] + even * (high - low);
    sum.mass += mass;
    sum.first += mass * ((low + high) / 2);
    sum.second += mass * ((low * low + low * high + high * high) / 3);
    mass_[bin + 1] = sum.mass;
    first_[bin + 1] = sum.first;
    second_[bin + 1] = sum.second;
  }
}

Moments MagnitudeHistogram::Below(double r) const {
  const size_t bin = r >= 1 ? kBins : HistogramBin(static_cast<float>(r));
  if (bin >= kBins) return {mass_[kBins], first_[kBins], second_[kBins]};
  const double low = Edge(bin), high = Edge(bin + 1);
  const double at = std::clamp(r, low, high);
  const double mass = (mass_[bin + 1] - mass_[bin]) * ((at - low) / (high - low));
  return {mass_[bin] + mass, first_[bin] + mass * ((low + at) / 2),
          second_[bin] + mass * ((low * low + low * at + at * at) / 3)};
}

double MagnitudeHistogram::Quantile(double mass, double a, double c) const {
  const auto above = std::ranges::upper_bound(mass_, mass);
  if (above == mass_.end()) return c;
  if (above == mass_.begin()) return a;
  const auto bin = static_cast<size_t>(above - mass_.begin()) - 1;
  const double low = Edge(bin), high = Edge(bin + 1);
  const double r = low + (high - low) * ((mass - mass_[bin]) / (mass_[bin + 1] - mass_[bin]));
  return std::clamp(r, a, c);
}

}  // namespace elastiquant
