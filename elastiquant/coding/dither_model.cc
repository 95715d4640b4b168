#include "elastiquant/coding/dither_model.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

namespace elastiquant {
namespace {

constexpr int kParts = 64;  // of a cell

// floor(2^(i/8) 2^30)
constexpr uint64_t kEighths[8] = {1073741824, 1170923761, 1276901416, 1392470868,
                                  1518500249, 1655936264, 1805811301, 1969251187};
constexpr uint64_t kLog2E = 1549082004;       // floor(log2(e) 2^30)
constexpr uint64_t kLog2EOverPi = 493088116;  // floor(log2(e) / pi 2^30)

// The powers of 2^-1/64 and of 2^-1/4096, 31 digits, each the one before times the first, cut.
struct Powers {
  constexpr explicit Powers(uint64_t first) {
    power[0] = uint64_t{1} << 31;
    for (size_t i = 1; i < 64; ++i) power[i] = power[i - 1] * first >> 31;
  }
  uint64_t power[64] = {};
};
constexpr Powers kCoarse(2124350982);
constexpr Powers kFine(2147120269);

// 2^-x with 31 digits, of x with 30.
uint64_t PowerOfHalf(uint64_t x) {
  const uint64_t exponent = x >> 30;
  if (exponent >= 32) return 0;
  return kCoarse.power[x >> 24 & 63] * kFine.power[x >> 18 & 63] >> 31 >> exponent;
}

// constant 2^(-eighths / 8) 2^14, with the digits of the constant.
uint64_t Scaled(uint64_t constant, int eighths, int divided_by_power) {
  const int m = -eighths;
  const int octaves = (m >= 0 ? m : m - 7) / 8;
  const uint64_t product = constant * kEighths[m - 8 * octaves] >> 30;
  const int shift = octaves + 14 - divided_by_power;
  return shift >= 0 ? product << shift : product >> -shift;
}

// The density at the middle of part t, relative to its top.
class Density {
 public:
  Density(DitherDensity density, int scale)
      : gauss_(density == DitherDensity::kGauss),
        factor_(gauss_ ? Scaled(kLog2EOverPi, 2 * scale, 14) : Scaled(kLog2E, scale, 7)) {}
  uint64_t At(uint64_t t) const {
    const uint64_t distance = 2 * t + 1;
    return PowerOfHalf((gauss_ ? distance * distance : distance) * factor_ >> 14);
  }

 private:
  bool gauss_;
  uint64_t factor_;
};

}  // namespace

DitherMasses::DitherMasses(DitherDensity density, int scale) {
  const Density of(density, scale);
  std::vector<uint64_t> half;
  for (uint64_t t = 0;; ++t) {
    const uint64_t mass = of.At(t);
    if (mass == 0) break;
    half.push_back(mass);
  }
  if (half.empty()) half.push_back(1);
  // Prefix sums of the prefix sums at both ends of each part.
  prefix_.reserve(2 * half.size() + 1);
  uint64_t below = 0, sum = 0;
  prefix_.push_back(0);
  for (size_t i = 0; i < 2 * half.size(); ++i) {
    const uint64_t mass = i < half.size() ? half[half.size() - 1 - i] : half[i - half.size()];
    sum += 2 * below + mass;
    below += mass;
    prefix_.push_back(sum);
  }
}

// Twice the sum of the distribution function over the parts below a boundary.
uint64_t DitherMasses::TwicePrefix(int64_t boundary) const {
  const int64_t size = static_cast<int64_t>(prefix_.size()) - 1;
  const int64_t at = boundary + size / 2;
  if (at <= 0) return 0;
  const uint64_t last = prefix_.back() - prefix_[prefix_.size() - 2];
  const auto first_mass = prefix_[1];  // the least mass of a part, at both ends
  if (at <= size) return prefix_[static_cast<size_t>(at)];
  return prefix_.back() + static_cast<uint64_t>(at - size) * (last + first_mass);
}

uint64_t DitherMasses::OfSymbols(const DitherClass& c, int bin,
                                 std::vector<uint64_t>* masses) const {
  const int raw = std::min<int>(c.raw, 6);
  const int64_t width = kParts / c.bins >> raw;
  // The distribution function at the lower edge of cell k, over the dither's bin.
  const auto edge = [&](int k) {
    const int64_t high = int64_t{kParts} * k - width * bin;
    return TwicePrefix(high) - TwicePrefix(high - width);
  };
  const uint64_t total =
      TwicePrefix(int64_t{1} << 20) - TwicePrefix((int64_t{1} << 20) - width);
  masses->clear();
  uint64_t kept = 0;
  for (int k = -c.reach; k <= c.reach; ++k) {
    masses->push_back(edge(k + 1) - edge(k));
    kept += masses->back();
  }
  masses->push_back(total - kept);
  return total;
}

namespace {

// Frequencies of at least 1 that add up to 4096; what rounding leaves goes to k = 0.
void Frequencies(const std::vector<uint64_t>& masses, uint64_t total, const DitherClass& c,
                 uint32_t* frequencies) {
  const uint64_t share = 4096 - masses.size();
  uint32_t sum = 0;
  for (size_t s = 0; s < masses.size(); ++s) {
    frequencies[s] = 1 + static_cast<uint32_t>(masses[s] * share / total);
    sum += frequencies[s];
  }
  frequencies[c.reach] += 4096 - sum;
}

void FillClass(DitherDensity density, int phase, int id, DitherModel* model) {
  const DitherClass c = DitherClassOf(id);
  const DitherMasses source(density, DitherScaleOf(id, phase) - 8 * c.raw);
  std::vector<uint64_t> masses;
  for (int bin = 0; bin < c.bins; ++bin) {
    const uint64_t total = source.OfSymbols(c, bin, &masses);
    uint32_t frequencies[64];
    Frequencies(masses, total, c, frequencies);
    uint32_t start = 0;
    for (size_t s = 0; s < masses.size(); ++s) {
      if (id <= kDitherNarrow) {
        model->narrow[id][s][bin] = static_cast<uint16_t>(start << 4 | s);
      } else {
        model->wide[id][static_cast<size_t>(bin) * masses.size() + s] =
            static_cast<uint16_t>(start);
      }
      start += frequencies[s];
    }
  }
}

}  // namespace

const DitherModel& GetDitherModel(DitherDensity density, int phase) {
  struct Slot {
    std::once_flag once;
    std::unique_ptr<DitherModel> model;
  };
  static std::array<Slot, 2 * kDitherPhases> slots;
  Slot& slot = slots[static_cast<size_t>(density) * kDitherPhases + static_cast<size_t>(phase)];
  std::call_once(slot.once, [&] {
    slot.model = std::make_unique<DitherModel>();
    for (int id = 1; id < kDitherClasses; ++id) FillClass(density, phase, id, slot.model.get());
  });
  return *slot.model;
}

}  // namespace elastiquant
