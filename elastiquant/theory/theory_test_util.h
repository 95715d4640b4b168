// What the tests of this folder share: vectors to try, and their exact errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/elastic/elastic_spec.h"
#include "elastiquant/theory/level_search.h"

namespace elastiquant::theory {

// As the order of a norm it means the largest magnitude.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline ElasticFormat FormatOf(const std::string& spec) {
  return ParseElasticSpec(*ParseSpec(spec)).value().format;
}

// Distributions of gradients' coordinates, and some that no gradient has.
inline constexpr const char* kKinds[] = {"gauss",    "laplace",   "heavy",     "sparse",
                                         "constant", "lognormal", "one large", "ramp"};

inline std::vector<float> VectorOf(const std::string& kind, size_t d, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::exponential_distribution<float> exponential;
  std::student_t_distribution<float> student(2.2f);
  std::uniform_real_distribution<float> uniform;
  std::vector<float> v(d);
  for (size_t i = 0; i < d; ++i) {
    const float sign = uniform(random) < 0.5f ? -1.0f : 1.0f;
    if (kind == "gauss") v[i] = normal(random);
    if (kind == "laplace") v[i] = sign * exponential(random);
    if (kind == "heavy") v[i] = student(random);
    if (kind == "sparse") v[i] = uniform(random) < 0.05f ? normal(random) : 0;
    if (kind == "constant") v[i] = sign;
    if (kind == "lognormal") v[i] = sign * std::exp(2 * normal(random));
    if (kind == "one large") v[i] = i == 0 ? 1.0f : sign * 1e-2f * uniform(random);
    if (kind == "ramp") v[i] = sign * static_cast<float>(i + 1);
  }
  if (v[0] == 0) v[0] = 1;
  return v;
}

// The relative errors that encoding and decoding v made, once for each of `draws` keys.
inline std::vector<double> Errors(const Codec& codec, const std::vector<float>& v, int draws) {
  std::vector<double> errors;
  for (int draw = 0; draw < draws; ++draw) {
    const auto key = DeriveKey(7, static_cast<uint64_t>(draw), 0, 0);
    errors.push_back(Nmse(v, Decode(Encode(codec, v, key), v.size())));
  }
  return errors;
}

// How far the mean of that many Errors may lie from ExactNmse, but once in 10^7 times:
// Bernstein's inequality with the variance and the largest of a coordinate's squared errors.
// Stochastic rounding in one bucket only.
inline double Tolerance(const ElasticFormat& format, const std::vector<float>& v, int draws) {
  const double norm = BucketNorm(format.norm, v);
  double size = 0, variance = 0, largest = 0;
  for (const float x : v) {
    size += static_cast<double>(x) * x;
    const double r = std::min(1.0, std::abs(static_cast<double>(x)) / norm);
    const Interval in = IntervalOf(format.levels, r);
    const double share = (r - in.low) / (in.high - in.low);  // the chance that it is rounded up
    const double up = (in.high - r) * (in.high - r), down = (r - in.low) * (r - in.low);
    variance += share * (1 - share) * (up - down) * (up - down);
    largest = std::max({largest, up, down});
  }
  const double logarithm = std::log(2e7), scale = norm * norm / size;
  return scale * (std::sqrt(2 * variance * logarithm / draws) +
                  2 * largest * logarithm / (3 * draws)) +
         1e-12;
}

inline double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum / static_cast<double>(values.size());
}

}  // namespace elastiquant::theory
