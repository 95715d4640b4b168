#include "elastiquant/codec/dither/dither_rate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <mutex>

namespace elastiquant {
namespace {

constexpr int kPointsBelow = 80;  // eighths of an octave below a scale of one step
constexpr int kPoints = 128;
using RateTable = std::array<double, kPoints>;

// The bits of an escape beyond its symbol, about.
constexpr double kEscapeBits = 8;

int ClassAt(int eighths, int phase) {
  const int shifted = eighths - (phase - kNeutralPhase) + 2;
  return std::clamp((shifted >= 0 ? shifted : shifted - 3) / 4 + kDitherUnitClass, 1,
                    kDitherClasses - 1);
}

uint32_t StartOf(const DitherModel& model, int id, const DitherClass& c, int bin, int symbol) {
  if (symbol == c.symbols()) return 4096;
  return id <= kDitherNarrow ? static_cast<uint32_t>(model.narrow[id][symbol][bin] >> 4)
                             : model.wide[id][bin * c.symbols() + symbol];
}

double CostAt(DitherDensity density, int phase, int eighths) {
  const DitherModel& model = GetDitherModel(density, phase);
  const int id = ClassAt(eighths, phase);
  const DitherClass c = DitherClassOf(id);
  const DitherMasses masses(density, eighths - 8 * c.raw);
  std::vector<uint64_t> symbols;
  double bits = 0;
  for (int bin = 0; bin < c.bins; ++bin) {
    const auto total = static_cast<double>(masses.OfSymbols(c, bin, &symbols));
    for (int s = 0; s < c.symbols(); ++s) {
      const uint32_t f = StartOf(model, id, c, bin, s + 1) - StartOf(model, id, c, bin, s);
      const double cost = 12 - ExactLog2(f) + (s == 2 * c.reach + 1 ? kEscapeBits : 0);
      bits += static_cast<double>(symbols[static_cast<size_t>(s)]) / total * cost;
    }
  }
  return bits / c.bins + c.raw;
}

const RateTable& GetRateTable(DitherDensity density, int phase) {
  struct Slot {
    std::once_flag once;
    RateTable table;
  };
  static std::array<Slot, 2 * kDitherPhases> slots;
  Slot& slot = slots[static_cast<size_t>(density) * kDitherPhases + static_cast<size_t>(phase)];
  std::call_once(slot.once, [&] {
    for (int i = 0; i < kPoints; ++i) {
      slot.table[static_cast<size_t>(i)] = CostAt(density, phase, i - kPointsBelow);
    }
  });
  return slot.table;
}

double RateAt(const RateTable& table, double log2_ratio) {
  const double x = 8 * log2_ratio + kPointsBelow;
  if (x <= 0) return table.front();
  if (x >= kPoints - 1) return table.back() + (x - (kPoints - 1)) / 8;
  const auto i = static_cast<size_t>(x);
  const double part = x - static_cast<double>(i);
  return table[i] + part * (table[i + 1] - table[i]);
}

// Below the exponents of all floats, the denormal ones too.
constexpr int kLeastExponent = 152;

// The exponent of a positive float, and three digits behind it.
size_t BinOf(float mean) {
  const auto bits = std::bit_cast<uint32_t>(mean);
  if (bits >= 0x00800000) return (bits >> 20) + 8 * (kLeastExponent - 127);
  // As a double it is a normal number.
  return (std::bit_cast<uint64_t>(static_cast<double>(mean)) >> 49) -
         8 * (1023 - kLeastExponent);
}

// log2 of the middle of a bin of DitherScales.
double MiddleOf(size_t bin) {
  constexpr double kMantissa[8] = {0.08746284, 0.24792751, 0.39231742, 0.52356196,
                                   0.64385619, 0.75488750, 0.85798100, 0.95419631};
  const size_t octave = bin / 8;
  return static_cast<double>(octave) - kLeastExponent + kMantissa[bin % 8];
}

}  // namespace

double ExactLog2(double x) {
  int exponent;
  double m = 2 * std::frexp(x, &exponent);
  double result = exponent - 1;
  for (double bit = 0.5; bit > 0x1p-30; bit /= 2) {
    m *= m;
    if (m >= 2) {
      m /= 2;
      result += bit;
    }
  }
  return result;
}

float DitherStep(double log2_step) {
  return static_cast<float>(ExactExp2(std::clamp(log2_step, -149.0, 126.0)));
}

double ExactExp2(double x) {
  const double whole = std::floor(x);
  double rest = x - whole, result = 1, root = 2;
  for (int i = 0; i < 32; ++i) {
    root = std::sqrt(root);
    rest *= 2;
    if (rest >= 1) {
      rest -= 1;
      result *= root;
    }
  }
  return std::ldexp(result, static_cast<int>(whole));
}

void DitherClassesFor(std::span<const float> means, DitherScale scale, int phase,
                      uint8_t* classes) {
  constexpr float kShift[kDitherPhases] = {1.1892071f, 1.0905077f, 1.0f, 0.9170040f};
  DitherClasses(means.data(), means.size(), scale, kShift[phase], classes);
}

void DitherScales::Add(std::span<const float> means, size_t coordinates) {
  // Side by side: most bins are the one before, whose count would have to be waited for.
  constexpr size_t kParts = 4;
  uint32_t counts[kParts][kBins] = {};
  size_t low = low_, high = high_;
  for (size_t b = 0; b < means.size(); ++b) {
    if (means[b] == 0) continue;
    const size_t bin = BinOf(means[b]);
    ++counts[b % kParts][bin];
    low = std::min(low, bin);
    high = std::max(high, bin + 1);
  }
  low_ = low;
  high_ = high;
  for (size_t bin = low_; bin < high_; ++bin) {
    for (const auto& part : counts) {
      counts_[bin] += part[bin] * static_cast<uint32_t>(coordinates);
    }
  }
}

double DitherScales::Bits(DitherDensity density, int phase, double log2_step) const {
  const RateTable& table = GetRateTable(density, phase);
  double bits = 0;
  for (size_t bin = low_; bin < high_; ++bin) {
    if (counts_[bin] != 0) bits += counts_[bin] * RateAt(table, MiddleOf(bin) - log2_step);
  }
  return bits;
}

double DitherScales::LeastStep() const { return MiddleOf(low_) - 20; }
double DitherScales::LargestStep() const { return MiddleOf(high_) + 16; }

double DitherScales::StepFor(DitherDensity density, int phase, double bits, double low,
                             double high) const {
  while (high - low > 0x1p-14) {
    const double middle = (low + high) / 2;
    (Bits(density, phase, middle) > bits ? low : high) = middle;
  }
  return high;
}

int DitherScales::BestPhase(DitherDensity density, double log2_step) const {
  int best = kNeutralPhase;
  double least = Bits(density, best, log2_step);
  for (int phase = 0; phase < kDitherPhases; ++phase) {
    const double bits = Bits(density, phase, log2_step);
    if (bits < least) {
      best = phase;
      least = bits;
    }
  }
  return best;
}

namespace {
// Of the classes that differences may have: bits of each symbol, all lanes alike.
constexpr int kDifferenceClasses = 24;
struct DifferenceCosts {
  DifferenceCosts() {
    const DitherModel& model = GetDitherModel(DitherDensity::kLaplace, kNeutralPhase);
    for (int id = 1; id < kDifferenceClasses; ++id) {
      const DitherClass c = DitherClassOf(id);
      for (int bin = 0; bin < c.bins; ++bin) {
        for (int s = 0; s < c.symbols(); ++s) {
          const uint32_t f = StartOf(model, id, c, bin, s + 1) - StartOf(model, id, c, bin, s);
          bits[id][s] += (12 - ExactLog2(f)) / c.bins + c.raw / static_cast<double>(c.bins);
        }
      }
    }
  }
  double Of(int id, int difference) const {
    const DitherClass c = DitherClassOf(id);
    const int high = difference >> c.raw;
    if (std::abs(high) <= c.reach) return bits[id][high + c.reach];
    const int excess = 2 * (std::abs(high) - c.reach - 1);
    return bits[id][2 * c.reach + 1] + (excess < 128 ? 8 : 16);
  }
  double bits[kDifferenceClasses][64] = {};
};
}  // namespace

DitherDifferences::DitherDifferences(std::span<const uint8_t> classes) {
  const size_t n = classes.size();
  if (n > 0) ++counts_[0][kDitherClasses];
  size_t b = 1;
  for (; b + kParts <= n; b += kParts) {
    for (size_t p = 0; p < kParts; ++p) {
      ++counts_[p][classes[b + p] - classes[b + p - 1] + kDitherClasses];
    }
  }
  for (; b < n; ++b) ++counts_[0][classes[b] - classes[b - 1] + kDitherClasses];
}

int DitherDifferences::BestClass() const {
  int best = 1;
  double least = Bits(best);
  for (int id = 2; id < kDifferenceClasses; ++id) {
    const double bits = Bits(id);
    if (bits >= least) continue;
    best = id;
    least = bits;
  }
  return best;
}

double DitherDifferences::Bits(int id) const {
  static const DifferenceCosts costs;
  double bits = 0;
  for (int d = -kDitherClasses + 1; d < kDitherClasses; ++d) {
    uint32_t count = 0;
    for (const auto& part : counts_) count += part[d + kDitherClasses];
    if (count != 0) bits += count * costs.Of(id, d);
  }
  return bits;
}

double DitherIndexBits(DitherDensity density, int phase, double log2_ratio) {
  return RateAt(GetRateTable(density, phase), log2_ratio);
}

}  // namespace elastiquant
