#include "elastiquant/policy/ratios.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

namespace elastiquant::policy {
namespace {

std::string Shown(double value) {
  std::string text = std::to_string(value);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

Status CheckVolumes(std::span<const double> volumes) {
  if (volumes.empty()) {
    return InvalidArgument(
        "there are no volumes: give one for each worker, such as 700,250,50");
  }
  for (size_t i = 0; i < volumes.size(); ++i) {
    if (volumes[i] > 0 && std::isfinite(volumes[i])) continue;
    return InvalidArgument("volume " + Shown(volumes[i]) + " of worker " + std::to_string(i) +
                           " is not valid; give how many samples it has, above 0");
  }
  return {};
}

Status CheckExponent(double exponent) {
  if (exponent >= 0 && exponent <= 10) return {};
  return InvalidArgument("exponent " + Shown(exponent) +
                         " is not valid; give a number from 0, which makes all workers equal, "
                         "to 10");
}

// Powers of the shares. They are of the largest share, so that no volume overflows.
std::vector<double> Powers(std::span<const double> volumes, double exponent) {
  const double largest = std::ranges::max(volumes);
  std::vector<double> powers;
  for (const double v : volumes) {
    powers.push_back(
        std::max(std::pow(v / largest, exponent), std::numeric_limits<double>::min()));
  }
  return powers;
}

double Sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Numbers workers by their volume, largest first.
std::vector<size_t> LargestFirst(std::span<const double> volumes) {
  std::vector<size_t> order(volumes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return volumes[a] > volumes[b]; });
  return order;
}

// Returns the place, largest first, of the worker whose ratio the published rule takes away.
// Shares are relative to any whole, as costs are only compared.
size_t Starved(std::span<const double> shares, std::span<const double> powers) {
  const size_t n = shares.size();
  const double total = Sum(powers);
  size_t least = n - 1;
  double least_cost = std::numeric_limits<double>::infinity();
  for (size_t j = n; j-- > 0;) {
    if (j + 1 < n && shares[j] == shares[j + 1]) continue;
    const size_t smallest = j == n - 1 ? n - 2 : n - 1;
    const double q = (total - powers[j]) / powers[smallest];
    const double cost = shares[j] * (1 + q) + shares[smallest] * q * (1 + q);
    if (cost < least_cost) {
      least_cost = cost;
      least = j;
    }
  }
  return least;
}

std::vector<double> Published(std::span<const double> volumes, double mean_ratio) {
  const size_t n = volumes.size();
  if (n == 1) return {mean_ratio};
  const std::vector<double> all_shares = Powers(volumes, 1);
  const std::vector<double> all_powers = Powers(volumes, kDagcExponent);
  std::vector<double> shares, powers;
  const std::vector<size_t> order = LargestFirst(volumes);
  for (const size_t i : order) {
    shares.push_back(all_shares[i]);
    powers.push_back(all_powers[i]);
  }
  const size_t starved = Starved(shares, powers);
  powers[starved] = powers[starved == n - 1 ? n - 2 : n - 1];
  const double scale = static_cast<double>(n) * mean_ratio / Sum(powers);
  std::vector<double> ratios(n);
  for (size_t j = 0; j < n; ++j) ratios[order[j]] = std::min(1.0, scale * powers[j]);
  return ratios;
}

// Returns min(1, c powers) with the c that gives the right mean: the largest reach 1 first.
std::vector<double> Filled(std::span<const double> powers, double mean_ratio) {
  const size_t n = powers.size();
  const std::vector<size_t> order = LargestFirst(powers);
  std::vector<double> rest(n + 1);  // the sum of the powers from this place on
  for (size_t j = n; j-- > 0;) rest[j] = rest[j + 1] + powers[order[j]];
  double budget = static_cast<double>(n) * mean_ratio;
  size_t full = 0;  // so many workers send all
  while (full < n && budget * (powers[order[full]] / rest[full]) >= 1) {
    ++full;
    budget -= 1;
  }
  std::vector<double> ratios(n, 1);
  for (size_t j = full; j < n; ++j) {
    const double ratio = budget * (powers[order[j]] / rest[full]);
    ratios[order[j]] = std::max(ratio, std::numeric_limits<double>::min());
  }
  return ratios;
}

}  // namespace

Result<RatioRule> ParseRatioRule(std::string_view text) {
  for (const RatioRule rule :
       {RatioRule::kUniform, RatioRule::kPublished, RatioRule::kMonotone}) {
    if (text == RatioRuleName(rule)) return rule;
  }
  return InvalidArgument("rule '" + std::string(text) +
                         "' is not known; valid are: uniform, published, monotone");
}

std::string_view RatioRuleName(RatioRule rule) {
  switch (rule) {
    case RatioRule::kUniform:
      return "uniform";
    case RatioRule::kPublished:
      return "published";
    case RatioRule::kMonotone:
      return "monotone";
  }
  return "unknown";
}

Result<std::vector<double>> WorkerRatios(RatioRule rule, double mean_ratio,
                                         std::span<const double> volumes, double exponent) {
  EQ_RETURN_IF_ERROR(CheckVolumes(volumes));
  EQ_RETURN_IF_ERROR(CheckExponent(exponent));
  if (!(mean_ratio > 0 && mean_ratio <= 1)) {
    return InvalidArgument("ratio " + Shown(mean_ratio) +
                           " is not valid; give the share of coordinates that workers send in "
                           "the mean, above 0 and at most 1");
  }
  if (rule == RatioRule::kPublished && exponent != kDagcExponent) {
    return InvalidArgument(
        "rule published has the exponent 2/3: take rule monotone for another one");
  }
  if (rule == RatioRule::kUniform) return std::vector<double>(volumes.size(), mean_ratio);
  if (rule == RatioRule::kPublished) return Published(volumes, mean_ratio);
  return Filled(Powers(volumes, exponent), mean_ratio);
}

Result<std::vector<double>> RelativeThresholds(std::span<const double> volumes,
                                               double exponent) {
  EQ_RETURN_IF_ERROR(CheckVolumes(volumes));
  EQ_RETURN_IF_ERROR(CheckExponent(exponent));
  std::vector<double> thresholds = Powers(volumes, exponent);
  const double mean = Sum(thresholds) / static_cast<double>(thresholds.size());
  for (double& t : thresholds) t = mean / t;
  return thresholds;
}

}  // namespace elastiquant::policy
