#include "elastiquant/codec/elastic/level_fit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "elastiquant/base/random.h"
#include "elastiquant/codec/tile_geometry.h"
#include "elastiquant/kernels/scaler.h"

namespace elastiquant {
namespace {

using Moments = MagnitudeHistogram::Moments;

constexpr int kShift = 23 - std::countr_zero(unsigned{MagnitudeHistogram::kBinsPerOctave});
constexpr uint32_t kFirstBits = (127u - MagnitudeHistogram::kOctaves) << 23;
constexpr double kLeast = 1.0 / (1 << MagnitudeHistogram::kOctaves);  // the least edge above 0

// The bin of a float in [0, 1], kBins of 1 itself: the first one has all below its end.
uint32_t BinOf(float r) {
  constexpr float kFirst = std::bit_cast<float>(kFirstBits);
  return (std::bit_cast<uint32_t>(r > kFirst ? r : kFirst) - kFirstBits) >> kShift;
}

// What rounding costs of all between two levels that have these moments below them.
double Rounding(double a, double c, const Moments& to_a, const Moments& to_c) {
  return (a + c) * (to_c.first - to_a.first) - (to_c.second - to_a.second) -
         a * c * (to_c.mass - to_a.mass);
}

// What a first level l in place of zero costs of all below it: l^2 - r^2.
double RoundingAcross(double l, const Moments& to_l) { return l * l * to_l.mass - to_l.second; }

// Places of levels, and the moments below them; while they are being fitted.
class Fit {
 public:
  static constexpr size_t kMost = kMaxLevels;

  // has_zero: the first place is 0 and stays. The last one is 1 and stays.
  Fit(const MagnitudeHistogram& histogram, bool has_zero)
      : histogram_(histogram), has_zero_(has_zero) {}

  // The best `count` places out of some, eight in each octave that matters.
  void Choose(size_t count, double largest_first);
  // Makes more places until there are `count`: each time in the costliest gap.
  void SplitUntil(size_t count);
  // Moves each place to the best between its neighbours, again and again.
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
  // Of the gap above place j.
  double GapCost(size_t j) const {
    return Rounding(place_[j], place_[j + 1], below_[j], below_[j + 1]);
  }
  // The best place between a and c, with the moments below them: F(l) = F(c) - integral of
  // (r - a) / (c - a) dF.
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

// Levels of least cost by dynamic programming: least[j] is that of all below candidate j if it
// is a level, with one more level in each round. The best level before j grows with j.
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
      const double cost = before[k] + Rounding(place[k], place[j], below[k], below[j]);
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
  // Below this no level is wanted: all there together has too little of the squares.
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
    program.before[j] = has_zero_                ? Rounding(0, place, {}, below)
                        : place <= largest_first ? RoundingAcross(place, below)
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

// With c the next level the cost of l is least where 2 l F(l) is the integral of (c - r) dF
// from l to c; the former grows with l and the latter falls.
double Fit::BestFirst(double largest) const {
  const double c = place_[1];
  double low = kLeast, high = std::min(largest, c);
  for (int halving = 0; halving < 24; ++halving) {
    const double l = (low + high) / 2;
    const Moments to_l = histogram_.Below(l);
    const double above = c * (below_[1].mass - to_l.mass) - (below_[1].first - to_l.first);
    (2 * l * to_l.mass < above ? low : high) = l;
  }
  return (low + high) / 2;
}

double Fit::Cost() const {
  double cost = has_zero_ ? 0 : RoundingAcross(place_[0], below_[0]);
  for (size_t j = 0; j + 1 < count_; ++j) cost += GapCost(j);
  return cost;
}

// Apart by what fp32 can tell, whatever was fitted.
LevelSet Fit::Levels() const {
  LevelSet levels;
  levels.count = count_;
  double before = kLeast;
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

// The values of a message that are looked at. Buckets are drawn in proportion to the squares of
// their norms, by which their errors count: a few may have most of the message's squares. Of a
// long message only so many norms, spread over all, are known. What is drawn depends on the
// values alone.
class Sample {
 public:
  static constexpr size_t kMostNorms = 4096;
  static constexpr size_t kPiece = 256, kLeastPieces = 128, kMostPieces = 1024, kOneIn = 16;

  Sample(std::span<const float> values, NormOrder order, size_t bucket, std::span<float> norms)
      : values_(values),
        order_(order),
        geometry_(bucket, false, values.size()),
        norms_(norms) {}

  void AddTo(MagnitudeHistogram* histogram) {
    const size_t buckets = geometry_.buckets();
    const size_t known = std::min(buckets, kMostNorms);
    const size_t pieces =
        std::clamp(values_.size() / (kPiece * kOneIn), kLeastPieces, kMostPieces);
    double total = 0;
    for (size_t k = 0; k < known; ++k) {
      if (k + kAhead < known) Prefetch(BucketNumber(k + kAhead, known));
      norms_[k] = NormOf(BucketNumber(k, known));
      total += Square(norms_[k]);
    }
    if (total == 0) return AddFirst(pieces, histogram);
    // Piece i is that at (i + 1/2) / pieces of the total.
    double sum = 0;
    size_t drawn = 0;
    for (size_t k = 0; k < known && drawn < pieces; ++k) {
      sum += Square(norms_[k]);
      const double share = sum / total * static_cast<double>(pieces) + 0.5;
      const size_t until = std::min(static_cast<size_t>(share), pieces);
      if (until > drawn) AddPieces(BucketNumber(k, known), norms_[k], until - drawn, histogram);
      drawn = std::max(drawn, until);
    }
  }

 private:
  // Buckets are far apart in memory, which takes as long to bring one as measuring it does.
  static constexpr size_t kAhead = 4, kMostPrefetched = 2048, kLineFloats = 16;
  void Prefetch(size_t bucket) const {
    const Piece piece = geometry_.Bucket(bucket);
    for (size_t i = 0; i < std::min(piece.size, kMostPrefetched); i += kLineFloats) {
      __builtin_prefetch(values_.data() + piece.begin + i);
    }
  }

  static double Square(float norm) { return static_cast<double>(norm) * norm; }

  // Number k of `known` buckets, one of each stretch.
  size_t BucketNumber(size_t k, size_t known) const {
    return OneOf(k, known, geometry_.buckets());
  }
  // One of `all` numbers in part k of `parts`; a hash keeps the choice out of step with layers.
  static size_t OneOf(size_t k, size_t parts, size_t all) {
    const size_t begin = k * all / parts, end = (k + 1) * all / parts;
    return begin + Mix64(k) % (end - begin);
  }

  // 0 of a bucket whose norm is not finite: encoding will refuse it.
  float NormOf(size_t bucket) const {
    const Piece piece = geometry_.Bucket(bucket);
    const float norm = BucketNorm(order_, values_.subspan(piece.begin, piece.size));
    return norm <= std::numeric_limits<float>::max() ? norm : 0;
  }

  // `count` pieces of a bucket, or all, with a weight that makes up for the others.
  void AddPieces(size_t bucket, float norm, size_t count, MagnitudeHistogram* histogram) const {
    const Piece whole = geometry_.Bucket(bucket);
    const size_t all = CeilDivide(whole.size, kPiece), taken = std::min(count, all);
    for (size_t k = 0; k < taken; ++k) {
      const size_t begin = OneOf(k, taken, all) * kPiece;
      const size_t size = std::min(kPiece, whole.size - begin);
      const double weight = static_cast<double>(count) / static_cast<double>(taken) *
                            static_cast<double>(whole.size) / static_cast<double>(size);
      histogram->Add(values_.subspan(whole.begin + begin, size), norm, weight);
    }
  }

  // The first buckets that are not zero: for messages that hardly have any.
  void AddFirst(size_t count, MagnitudeHistogram* histogram) const {
    for (size_t bucket = 0; bucket < geometry_.buckets() && count > 0; ++bucket) {
      const float norm = NormOf(bucket);
      if (norm == 0) continue;
      AddPieces(bucket, norm, 1, histogram);
      --count;
    }
  }

  const std::span<const float> values_;
  const NormOrder order_;
  const TileGeometry geometry_;
  const std::span<float> norms_;
};

// A first level near 0 is as good as a zero, whatever the message is, but makes noise of values
// that are exactly 0. So a zero goes only if that pays.
constexpr double kWorthNoZero = 15.0 / 16;

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
  // By themselves, so that the compiler makes vectors of them.
  std::array<uint32_t, 64> bin;
  for (; !values.empty(); values = values.subspan(std::min(values.size(), bin.size()))) {
    const size_t count = std::min(values.size(), bin.size());
    for (size_t i = 0; i < count; ++i) bin[i] = BinOf(ScaledSize(scaler, values[i]));
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

MagnitudeHistogram::Moments MagnitudeHistogram::Below(double r) const {
  const size_t bin = r >= 1 ? kBins : BinOf(static_cast<float>(r));
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
  const auto scratch = work.Scratch(0, at_norms + Sample::kMostNorms * sizeof(float));
  const std::span<float> norms(reinterpret_cast<float*>(scratch.data() + at_norms),
                               Sample::kMostNorms);
  MagnitudeHistogram histogram(scratch);
  Sample(values, norm, bucket, norms).AddTo(&histogram);
  if (histogram.mass() == 0) return UniformLevels(bits);
  histogram.Finish();
  const FittedLevels with = FitWithZero(histogram, bits);
  if (!without_zero || bits > kMostBitsWithoutZero) return with.levels;
  const FittedLevels without = FitWithoutZero(histogram, bits);
  return without.variance < kWorthNoZero * with.variance ? without.levels : with.levels;
}

}  // namespace elastiquant
