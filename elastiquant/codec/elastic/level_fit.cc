#include "elastiquant/codec/elastic/level_fit.h"

#include <algorithm>
#include <array>
#include <limits>

#include "elastiquant/codec/elastic/magnitude_sample.h"

namespace elastiquant {
namespace {

// The histogram counts what is below this as 0.
constexpr double kLeastCounted = 1.0 / (1 << MagnitudeHistogram::kOctaves);

// Returns what a first level l in place of zero costs for all that lies below it: l^2 - r^2
// each.
double VarianceBelow(double l, const Moments& to_l) { return l * l * to_l.mass - to_l.second; }

// The places of levels while they are being fitted, and the moments below each.
class Fit {
 public:
  static constexpr size_t kMost = kMaxLevels;

  // If has_zero is set, the first place is 0 and stays there. The last one is 1 and stays
  // there.
  Fit(const MagnitudeHistogram& histogram, bool has_zero)
      : histogram_(histogram), has_zero_(has_zero) {}

  // Takes the best `count` places out of some candidates, eight in each octave that matters.
  void Choose(size_t count, double largest_first);
  // Makes more places until there are `count`, each time in the costliest gap.
  void SplitUntil(size_t count);
  // Moves each place to the best one between its neighbours, again and again.
  void Descend(double largest_first);

  double Cost() const;
  LevelSet Levels() const;

 private:
  static constexpr size_t kMostCandidates = MagnitudeHistogram::kOctaves * 8 + 1;

  void Insert(size_t at, double place) {
    std::copy_backward(place_.begin() + at, place_.begin() + count_,
                       place_.begin() + count_ + 1);
    std::copy_backward(below_.begin() + at, below_.begin() + count_,
                       below_.begin() + count_ + 1);
    ++count_;
    Move(at, place);
  }
  void Move(size_t at, double place) {
    place_[at] = place;
    below_[at] = histogram_.Below(place);
  }
  // Returns the cost of the gap above place j.
  double GapCost(size_t j) const {
    return RoundingVariance(below_[j + 1] - below_[j], place_[j], place_[j + 1]);
  }
  // Returns the best place l between a and c, given the moments below these: it is where F(l) =
  // F(c) minus the integral of (r - a) / (c - a) dF.
  double BestBetween(double a, double c, const Moments& to_a, const Moments& to_c) const {
    if (!(c > a)) return a;
    const double first = to_c.first - to_a.first, mass = to_c.mass - to_a.mass;
    return histogram_.Quantile(to_c.mass - (first - a * mass) / (c - a), a, c);
  }
  double BestFirst(double largest) const;

  const MagnitudeHistogram& histogram_;
  const bool has_zero_;
  size_t count_ = 0;
  std::array<double, kMost> place_;
  std::array<Moments, kMost> below_;
};

// Finds levels of least cost by dynamic programming. before[j] is the least cost of all that
// lies below candidate j if it is a level. Each round allows one level more, and computes
// now[j] from before[k] for all k up to j. The best level before j grows with j, so each half
// of the candidates needs to look only at the levels on its side of the best one for the
// middle.
struct Program {
  static constexpr size_t kMost = MagnitudeHistogram::kOctaves * 8 + 1, kRounds = 8;
  size_t size = 0;
  std::array<double, kMost> place;
  std::array<Moments, kMost> below;
  std::array<double, kMost> before, now;
  std::array<std::array<uint8_t, kMost>, kRounds> best;

  void Solve(std::array<uint8_t, kMost>& arguments, size_t begin, size_t end, size_t from,
             size_t to) {
    if (begin >= end) return;
    const size_t j = begin + (end - begin) / 2;
    double least = std::numeric_limits<double>::infinity();
    size_t argument = from;
    for (size_t k = from; k <= std::min(to, j); ++k) {
      const double cost = before[k] + RoundingVariance(below[j] - below[k], place[k], place[j]);
      if (cost < least) {
        least = cost;
        argument = k;
      }
    }
    now[j] = least;
    arguments[j] = static_cast<uint8_t>(argument);
    Solve(arguments, begin, j, from, argument);
    Solve(arguments, j + 1, end, argument, to);
  }
};

void Fit::Choose(size_t count, double largest_first) {
  static_assert(kMostCandidates == Program::kMost && Program::kMost <= 256);
  constexpr size_t kStep = MagnitudeHistogram::kBinsPerOctave / 8;
  // No level is wanted where all that lies below it has less than this share of the squares.
  constexpr double kNegligible = 0x1p-16;
  Program program;
  const double most = histogram_.Below(1).second * kNegligible;
  if (has_zero_) {
    program.place[0] = 0;
    program.size = 1;
  }
  for (size_t bin = kStep; bin <= MagnitudeHistogram::kBins; bin += kStep) {
    const double place = MagnitudeHistogram::Edge(bin);
    const bool spare = bin + kStep * (count + 1) <= MagnitudeHistogram::kBins &&
                       (has_zero_ || place < largest_first / 8);
    if (spare && histogram_.Below(place).second < most) continue;
    program.place[program.size++] = place;
  }
  const size_t size = program.size;
  for (size_t j = 0; j < size; ++j) {
    const double place = program.place[j];
    const Moments below = program.below[j] = histogram_.Below(place);
    program.before[j] = has_zero_                ? RoundingVariance(below, 0, place)
                        : place <= largest_first ? VarianceBelow(place, below)
                                                 : std::numeric_limits<double>::infinity();
  }
  // With zero the first round is done: the gap from 0 to place j.
  const size_t rounds = count - (has_zero_ ? 2 : 1);
  for (size_t round = 0; round < rounds; ++round) {
    program.Solve(program.best[round], 0, size, 0, size - 1);
    std::swap(program.before, program.now);
  }
  count_ = count;
  size_t at = size - 1;
  for (size_t j = count, round = rounds; j-- > 0;) {
    place_[j] = program.place[at];
    below_[j] = program.below[at];
    if (round > 0) {
      at = program.best[--round][at];
    } else if (has_zero_) {
      at = 0;
    }
  }
}

void Fit::SplitUntil(size_t count) {
  while (count_ < count) {
    size_t costliest = 0;
    double most = -1;
    for (size_t j = 0; j + 1 < count_; ++j) {
      const double cost = GapCost(j);
      if (cost <= most) continue;
      most = cost;
      costliest = j;
    }
    const size_t j = costliest;
    Insert(j + 1, BestBetween(place_[j], place_[j + 1], below_[j], below_[j + 1]));
  }
}

void Fit::Descend(double largest_first) {
  // A level feels what moves at the other end after about as many sweeps as there are levels.
  const size_t sweeps = std::min<size_t>(count_ + 4, 24);
  for (size_t sweep = 0; sweep < sweeps; ++sweep) {
    if (!has_zero_ && count_ > 1) Move(0, BestFirst(largest_first));
    for (size_t j = 1; j + 1 < count_; ++j) {
      Move(j, BestBetween(place_[j - 1], place_[j + 1], below_[j - 1], below_[j + 1]));
    }
  }
}

// If c is the next level, the cost of l is least where 2 l F(l) is the integral of (c - r) dF
// from l to c. The former grows with l, and the latter falls.
double Fit::BestFirst(double largest) const {
  const double c = place_[1];
  double low = kLeastCounted, high = std::min(largest, c);
  for (int halving = 0; halving < 24; ++halving) {
    const double l = (low + high) / 2;
    const Moments to_l = histogram_.Below(l);
    const double above = c * (below_[1].mass - to_l.mass) - (below_[1].first - to_l.first);
    (2 * l * to_l.mass < above ? low : high) = l;
  }
  return (low + high) / 2;
}

double Fit::Cost() const {
  double cost = has_zero_ ? 0 : VarianceBelow(place_[0], below_[0]);
  for (size_t j = 0; j + 1 < count_; ++j) cost += GapCost(j);
  return cost;
}

// Returns the places as floats, moved apart as far as fp32 can tell them, whatever was fitted.
LevelSet Fit::Levels() const {
  LevelSet levels;
  levels.count = count_;
  double before = kLeastCounted;
  for (size_t j = has_zero_ ? 1 : 0; j < count_; ++j) {
    before = std::max(place_[j], before * (1 + 0x1p-18));
    levels.values[j] = static_cast<float>(before);
  }
  double after = 1;
  levels.values[count_ - 1] = 1;
  for (size_t j = count_ - 1; j-- > (has_zero_ ? 1 : 0);) {
    after = std::min<double>(levels.values[j], after * (1 - 0x1p-18));
    levels.values[j] = static_cast<float>(after);
  }
  return levels;
}

// Whatever the message is, a first level near 0 is as good as a zero, but it makes noise of
// values that are exactly 0. So the zero is given up only if that pays.
constexpr double kWorthNoZero = 15.0 / 16;

}  // namespace

FittedLevels FitWithZero(const MagnitudeHistogram& histogram, int bits) {
  const size_t count = LevelsOfBits(bits);
  Fit fit(histogram, true);
  fit.Choose(std::min<size_t>(count, 8), 0);
  fit.SplitUntil(count);
  fit.Descend(0);
  return {fit.Levels(), fit.Cost()};
}

FittedLevels FitWithoutZero(const MagnitudeHistogram& histogram, int bits) {
  Fit fit(histogram, false);
  fit.Choose(LevelsOfBits(bits), LargestFirstLevel(bits));
  fit.Descend(LargestFirstLevel(bits));
  return {fit.Levels(), fit.Cost()};
}

LevelSet FitLevelsTo(std::span<const float> values, NormOrder norm, size_t bucket, int bits,
                     bool without_zero, Workspace& work) {
  if (values.empty()) return UniformLevels(bits);
  const size_t at_norms = MagnitudeHistogram::kScratchBytes;
  const auto scratch = work.Scratch(0, at_norms + kMostSampledNorms * sizeof(float));
  const std::span<float> norms(reinterpret_cast<float*>(scratch.data() + at_norms),
                               kMostSampledNorms);
  MagnitudeHistogram histogram(scratch);
  AddSample(values, norm, bucket, norms, &histogram);
  if (histogram.mass() == 0) return UniformLevels(bits);
  histogram.Finish();
  const FittedLevels with = FitWithZero(histogram, bits);
  if (!without_zero || bits > kMostBitsWithoutZero) return with.levels;
  const FittedLevels without = FitWithoutZero(histogram, bits);
  return without.variance < kWorthNoZero * with.variance ? without.levels : with.levels;
}

}  // namespace elastiquant
