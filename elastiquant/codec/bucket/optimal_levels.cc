#include "elastiquant/codec/bucket/optimal_levels.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace elastiquant {
namespace {

// The best level between the values number `low` and `high`, which are levels themselves: the
// one that as many values do not exceed as the ends' weights, sum (c - v) / (c - a), ask for.
// sums[i] is the sum of the first i values.
size_t BestMiddle(std::span<const float> sorted, std::span<const double> sums, size_t low,
                  size_t high) {
  const double a = sorted[low], c = sorted[high];
  if (!(c > a)) return low;
  const double count = static_cast<double>(high - low + 1);
  const double wanted = std::ceil((count * c - (sums[high + 1] - sums[low])) / (c - a));
  const auto place = static_cast<size_t>(std::clamp(wanted, 1.0, count));
  return low + place - 1;
}

void Halve(std::span<const float> sorted, std::span<const double> sums, size_t low, size_t high,
           std::span<float> levels) {
  if (levels.size() < 3) return;
  const size_t middle = BestMiddle(sorted, sums, low, high);
  const size_t half = levels.size() / 2;
  levels[half] = sorted[middle];
  Halve(sorted, sums, low, middle, levels.first(half + 1));
  Halve(sorted, sums, middle, high, levels.subspan(half));
}

// Candidates for levels, with the sums of the weights, of weight * place and of weight *
// place^2 of all candidates up to one.
struct Candidates {
  std::span<double> place, weights, first, second;
  size_t size() const { return place.size(); }

  // What rounding costs of all that is between candidates k <= j.
  double Cost(size_t k, size_t j) const {
    const double a = place[k], c = place[j];
    return (a + c) * (first[j] - first[k]) - (second[j] - second[k]) -
           a * c * (weights[j] - weights[k]);
  }
};

// One round of the dynamic program: now[j] = min over k <= j of before[k] + Cost(k, j), for j
// in [begin, end); the best k lies in [from, to] and grows with j.
struct Round {
  const Candidates& all;
  const double* before;
  double* now;
  uint16_t* best;

  void Solve(size_t begin, size_t end, size_t from, size_t to) const {
    if (begin >= end) return;
    const size_t j = begin + (end - begin) / 2;
    double least = std::numeric_limits<double>::infinity();
    size_t argument = from;
    for (size_t k = from; k <= std::min(to, j); ++k) {
      const double cost = before[k] + all.Cost(k, j);
      if (cost < least) {
        least = cost;
        argument = k;
      }
    }
    now[j] = least;
    best[j] = static_cast<uint16_t>(argument);
    Solve(begin, j, from, argument);
    Solve(j + 1, end, argument, to);
  }
};

// Memory for n candidates, and what else n doubles are needed for, out of bytes aligned to 8.
struct Memory {
  Memory(std::span<uint8_t> scratch, size_t n)
      : doubles(reinterpret_cast<double*>(scratch.data())),
        all{{doubles, n}, {doubles + n, n}, {doubles + 2 * n, n}, {doubles + 3 * n, n}},
        cost{doubles + 4 * n, doubles + 5 * n},
        best(reinterpret_cast<uint16_t*>(doubles + 6 * n)) {}
  double* doubles;
  Candidates all;
  double* cost[2];
  uint16_t* best;  // n for each round
};

// The places of the best levels, written into `chosen`, of which there are levels.size().
void Choose(const Memory& memory, std::span<size_t> chosen) {
  const Candidates& all = memory.all;
  const size_t n = all.size(), rounds = chosen.size() - 1;
  double* before = memory.cost[0];
  double* now = memory.cost[1];
  for (size_t j = 0; j < n; ++j) before[j] = all.Cost(0, j);
  for (size_t round = 1; round < rounds; ++round) {
    Round{all, before, now, memory.best + round * n}.Solve(0, n, 0, n - 1);
    std::swap(before, now);
  }
  chosen.back() = n - 1;
  for (size_t round = rounds; round > 1; --round) {
    chosen[round - 1] = memory.best[(round - 1) * n + chosen[round]];
  }
  chosen[0] = 0;
}

constexpr size_t kMostLevels = 256;

}  // namespace

void OrqLevels(std::span<const float> sorted, std::span<double> sums, std::span<float> levels) {
  double sum = 0;
  sums[0] = 0;
  for (size_t i = 0; i < sorted.size(); ++i) sums[i + 1] = sum += sorted[i];
  levels.front() = sorted.front();
  levels.back() = sorted.back();
  Halve(sorted, sums, 0, sorted.size() - 1, levels);
}

size_t QuiverScratchBytes(size_t values, size_t levels) {
  return values * (6 * sizeof(double) + levels * sizeof(uint16_t));
}

void QuiverLevels(std::span<const float> sorted, std::span<uint8_t> scratch,
                  std::span<float> levels) {
  const Memory memory(scratch, sorted.size());
  double first = 0, second = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const double v = sorted[i];
    memory.all.place[i] = v;
    memory.all.weights[i] = static_cast<double>(i + 1);
    memory.all.first[i] = first += v;
    memory.all.second[i] = second += v * v;
  }
  size_t chosen[kMostLevels];
  Choose(memory, {chosen, levels.size()});
  for (size_t k = 0; k < levels.size(); ++k) levels[k] = sorted[chosen[k]];
}

void QuiverGridLevels(std::span<const float> values, size_t bins, std::span<uint8_t> scratch,
                      std::span<float> levels) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double low = *least,
               width = (static_cast<double>(*most) - low) / static_cast<double>(bins);
  const Memory memory(scratch, bins + 1);
  std::fill_n(memory.all.weights.data(), bins + 1, 0.0);
  const double scale = width > 0 ? 1 / width : 0;
  for (const float v : values) {
    const double at = (v - low) * scale;
    const size_t bin = std::min(static_cast<size_t>(at), bins - 1);
    const double share = at - static_cast<double>(bin);
    memory.all.weights[bin] += 1 - share;
    memory.all.weights[bin + 1] += share;
  }
  double weights = 0, first = 0, second = 0;
  for (size_t i = 0; i <= bins; ++i) {
    const double x = static_cast<double>(i), weight = memory.all.weights[i];
    memory.all.place[i] = x;
    memory.all.weights[i] = weights += weight;
    memory.all.first[i] = first += weight * x;
    memory.all.second[i] = second += weight * x * x;
  }
  size_t chosen[kMostLevels];
  Choose(memory, {chosen, levels.size()});
  for (size_t k = 0; k < levels.size(); ++k) {
    levels[k] = static_cast<float>(low + width * static_cast<double>(chosen[k]));
  }
  levels.back() = *most;
}

}  // namespace elastiquant
