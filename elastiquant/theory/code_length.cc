#include "elastiquant/theory/code_length.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "elastiquant/codec/elastic/elastic_encode.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/coding/elias_omega.h"
#include "elastiquant/theory/omega_hull.h"
#include "elastiquant/theory/search.h"

namespace elastiquant::theory {
namespace {

constexpr double kNormBits = 32;

// Expected bits of a coordinate by its magnitude: `cost` at each level, linear in between.
struct CoordinateCost {
  const LevelSet& levels;
  std::vector<double> cost;

  CoordinateCost(const LevelSet& set, double gap_bits) : levels(set), cost(set.count) {
    for (size_t j = 1; j < set.count; ++j) cost[j] = gap_bits + 1 + EncodeOmega(j).length;
  }

  // The largest of cost - lambda r^q between level j and the next: where the slopes are equal,
  // or at an end.
  double LargestBetween(size_t j, double lambda, double q) const {
    const double low = levels.values[j], high = levels.values[j + 1];
    const double slope = (cost[j + 1] - cost[j]) / (high - low);
    const auto at = [&](double r) {
      return cost[j] + slope * (r - low) - lambda * std::pow(r, q);
    };
    double largest = std::max(at(low), at(high));
    if (q > 1 && slope > 0) {
      const double r = std::pow(slope / (lambda * q), 1 / (q - 1));
      if (r > low && r < high) largest = std::max(largest, at(r));
    }
    return largest;
  }

  double Largest(double lambda, double q) const {
    double largest = 0;
    for (size_t j = 0; j + 1 < levels.count; ++j) {
      largest = std::max(largest, LargestBetween(j, lambda, q));
    }
    return largest;
  }
};

// The most that coordinates can cost together.
double LargestSum(const CoordinateCost& cost, double d, double q) {
  const double most = *std::max_element(cost.cost.begin(), cost.cost.end());
  // All coordinates may be as large as the norm, or all but nothing.
  if (std::isinf(q) || most <= 0) return d * most;
  const auto dual = [&](double log_lambda) {
    const double lambda = std::exp(log_lambda);
    return lambda + d * cost.Largest(lambda, q);
  };
  const double top = d * most;  // with lambda = top the dual is at least top
  return std::min(top, GoldenSection(dual, std::log(top) - 40, std::log(top)).value);
}

// A run of `length` coordinates whose r^q add up to 1.
double RunBits(const LevelSet& levels, double length, double q) {
  double least = INFINITY;
  for (const OmegaLine& line : OmegaHull()) {
    const double bits =
        line.beta * length + LargestSum(CoordinateCost(levels, line.alpha), length, q);
    least = std::min(least, bits);
  }
  return least;
}

double CountBits(const LevelSet& levels, double d, double q) {
  return OmegaHullAt(1 + NonzerosBound(levels.values[1], d, q));
}

// n and the argument of the published forms; none where they are not claimed.
std::optional<double> PublishedNonzeros(int inner, double d) {
  const double n = PublishedNonzerosBound(std::pow(2.0, -inner), d);
  if (n > d / std::numbers::e) return std::nullopt;
  return n;
}

// Buckets that are longer than a tile are coded in several runs, each with a count of its own.
double EliasPayloadBits(const ElasticFormat& format, const ElasticLayout& layout, size_t n) {
  const double q = OrderOf(format.norm);
  const auto bucket_bits = [&](size_t size) {
    const double d = static_cast<double>(size);
    if (!layout.wide()) return EliasBound(format.levels, d, q);
    const double runs = static_cast<double>(CeilDivide(size, layout.run()) + 1);
    return RunBits(format.levels, d, q) +
           runs * OmegaHullAt(1 + static_cast<double>(layout.run()));
  };
  const size_t length = format.bucket == 0 ? n : format.bucket;
  const size_t full = n / length, rest = n % length;
  double bits = 7.0 * static_cast<double>(layout.tiles());  // each is padded to whole bytes
  if (full > 0) bits += static_cast<double>(full) * bucket_bits(length);
  if (rest > 0) bits += bucket_bits(rest);
  return bits;
}

}  // namespace

double NonzerosBound(double smallest, double d, double q) {
  return std::min(d, std::pow(d, 1 - 1 / q) / smallest);
}

double PublishedNonzerosBound(double smallest, double d) {
  return 1 / (smallest * smallest) + std::sqrt(d) / smallest;
}

std::optional<double> PublishedCodeLength(int inner, double d) {
  const auto n = PublishedNonzeros(inner, d);
  if (!n) return std::nullopt;
  const double levels = std::log2(8 * (std::pow(4.0, inner) + d) / *n);
  return kNormBits + *n * (3 + std::log2(d / *n) + std::log2(levels));
}

std::optional<double> ExplicitCodeLength(int inner, double d) {
  const auto n = PublishedNonzeros(inner, d);
  if (!n) return std::nullopt;
  const double levels = std::log2(16 * (std::pow(4.0, inner) + d) / *n) / 2;
  return kNormBits +
         *n * (3 + 2.5 * std::log2(d / *n) + 2.5 * std::max(0.0, std::log2(levels)));
}

double EliasBound(const LevelSet& levels, double d, double q) {
  return RunBits(levels, d, q) + CountBits(levels, d, q);
}

double ExpectedFrameBits(const ElasticFormat& format, size_t n) {
  const double most = 8.0 * static_cast<double>(MaxElasticFrameBytes(format, n));
  // The runs that are coded together are not those that share a norm if tensors end buckets.
  if (format.coding != IndexCoding::kElias || n == 0 || !format.tensors.empty()) return most;
  const ElasticLayout layout(format, n);
  const size_t front = FramePayloadOffset(kElasticParameterBytes) + layout.places().tiles_at();
  return std::min(most, 8.0 * static_cast<double>(front) + EliasPayloadBits(format, layout, n));
}

}  // namespace elastiquant::theory
