// What a receiver gets: the same bits of a lossless codec, the values on the mean of an
// unbiased one, and an error within the bound of any.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "elastiquant/codec/conformance/conformance_testing.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

// What is promised of one class only runs over the codecs of that class.
class LosslessConformance : public Conformance {};
class UnbiasedConformance : public Conformance {};

bool IsTiny(float v) { return v != 0 && std::abs(v) < 1e-15f; }

TEST_P(LosslessConformance, FramesGiveTheSameBits) {
  for (size_t n : kLengths) {
    const std::vector<float> values = Gaussian(n);
    EXPECT_TRUE(SameBits(Decoded(Encoded(values), n), values)) << n;
  }
  for (const auto& values : DifficultVectors()) {
    EXPECT_TRUE(SameBits(Decoded(Encoded(values), values.size()), values));
  }
}

// The errors Q(v) - v of many draws, coordinate by coordinate.
struct ErrorSums {
  explicit ErrorSums(size_t n) : sum(n), squares(n), varies(n, false), first(n) {}
  void Add(std::span<const float> q, std::span<const float> values) {
    for (size_t i = 0; i < q.size(); ++i) {
      const double error = static_cast<double>(q[i]) - values[i];
      if (draws == 0) first[i] = error;
      if (error != first[i]) varies[i] = true;
      sum[i] += error;
      squares[i] += error * error;
      largest = std::max(largest, std::abs(error));
    }
    ++draws;
  }
  std::vector<double> sum, squares;
  std::vector<bool> varies;
  std::vector<double> first;
  double largest = 0;
  int draws = 0;
};

constexpr int kConformanceDraws = 600;

// A sum of independent draws against the root of the sum of their squares.
struct DrawSum {
  void Add(double draw) {
    sum += draw;
    squares += draw * draw;
  }
  double z() const { return squares > 0 ? std::abs(sum) / std::sqrt(squares) : 0; }
  double sum = 0, squares = 0;
};

// If E error = 0 then E (sum of T errors)^2 = E (sum of T squared errors), however rare an
// outcome is; a lasting error makes the left side up to T times the right one. Their ratio
// spreads by sqrt(2 / f), f being how many ways the errors go: as many as there are coordinates
// of a quantiser, but few if whole parts of the vector are drawn. Two independent errors have a
// product whose mean square tells f.
TEST_P(UnbiasedConformance, ErrorsCancelOut) {
  const std::vector<float> values = Gaussian(1300);
  ErrorSums errors(values.size());
  DrawSum total, outward, products;
  std::vector<double> last(values.size());
  for (uint64_t t = 0; t < kConformanceDraws; ++t) {
    const std::vector<float> q = Decoded(Encoded(values, DeriveKey(9, t, 0, 0)), values.size());
    errors.Add(q, values);
    double all = 0, away = 0, product = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = static_cast<double>(q[i]) - values[i];
      all += error;
      away += values[i] < 0 ? -error : error;
      product += error * last[i];
      last[i] = error;
    }
    total.Add(all);
    outward.Add(away);
    products.Add(product);
  }
  double of_sums = 0, of_squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    of_sums += errors.sum[i] * errors.sum[i];
    of_squares += errors.squares[i];
  }
  const double spread = std::sqrt(2 * products.squares * kConformanceDraws) / of_squares;
  EXPECT_LT(of_sums / of_squares, 1 + std::max(0.4, 5 * spread));
  EXPECT_LT(total.z(), 5) << "the same way everywhere";
  EXPECT_LT(outward.z(), 5) << "towards or away from zero";
}

TEST_P(UnbiasedConformance, HoldsForDifficultVectors) {
  for (const auto& values : DifficultVectors()) {
    const size_t n = values.size();
    ErrorSums errors(n);
    for (uint64_t t = 0; t < kConformanceDraws; ++t) {
      errors.Add(Decoded(Encoded(values, DeriveKey(9, t, 0, n)), n), values);
    }
    double norm = 0, largest = 0, total = 0, variance = 0;
    for (size_t i = 0; i < n; ++i) {
      const double v = values[i];
      norm += v * v;
      largest = std::max(largest, std::abs(v));
      total += errors.sum[i];
      variance += errors.squares[i];
    }
    // Levels are products of floats: each has half a unit in the last place to itself.
    const double rounding = std::sqrt(norm) * 0x1p-23 + kDenormal;
    // An outcome of probability p is missed by T draws with e^-pT: 16/T is missed once in 10^7.
    for (size_t i = 0; i < n; ++i) {
      if (!errors.varies[i]) continue;  // it is held against `total` only
      EXPECT_LE(std::abs(errors.sum[i]), 5.5 * std::sqrt(errors.squares[i]) +
                                             16 * errors.largest + kConformanceDraws * rounding)
          << "coordinate " << i << " of " << n;
    }
    EXPECT_LE(std::abs(total), 5 * std::sqrt(variance) + 16 * largest +
                                   kConformanceDraws * static_cast<double>(n) * rounding)
        << n;
  }
}

// The squared errors of many draws, of a run of coordinates.
struct Draws {
  static constexpr int kCount = 200;
  double norm = 0, sum = 0, squares = 0;

  void Add(double error) {
    sum += error;
    squares += error * error;
  }
  void ExpectWithin(double bound) const {
    const double mean = sum / kCount;
    const double deviation =
        std::sqrt(std::max(0.0, squares / kCount - mean * mean) / (kCount - 1));
    EXPECT_LE(mean, bound * norm * (1 + 1e-5) + 5 * deviation + norm * 0x1p-46);
  }
};

// What a receiver may count on: the mean squared error of many draws against the bound, of the
// message and of each run that the codec quantises apart.
TEST_P(Conformance, TheErrorStaysWithinTheBound) {
  if (codec_->codec_class() == CodecClass::kContractive) {
    ASSERT_TRUE(codec_->NmseBound(1300).has_value());
    EXPECT_LT(*codec_->NmseBound(1300), 1);
  }
  if (!codec_->NmseBound(1300)) GTEST_SKIP() << "no bound is known";
  for (const auto& values : DifficultVectors()) {
    const size_t n = values.size();
    const std::optional<double> bound = codec_->NmseBound(n);
    if (!bound || std::ranges::any_of(values, IsTiny)) continue;
    EXPECT_GE(*bound, 0);
    const size_t run = codec_->granule() == 0 ? std::max<size_t>(n, 1) : codec_->granule();
    const std::vector<float> zeros(n);
    Draws whole;
    std::vector<Draws> runs((n + run - 1) / run);
    const auto of_run = [&](std::span<const float> all, size_t r) {
      return all.subspan(r * run, std::min(run, n - r * run));
    };
    for (size_t r = 0; r < runs.size(); ++r) {
      runs[r].norm = SquaredDistance(of_run(values, r), of_run(zeros, r));
      whole.norm += runs[r].norm;
    }
    for (uint64_t t = 0; t < Draws::kCount; ++t) {
      const std::vector<float> q = Decoded(Encoded(values, DeriveKey(5, t, 0, n)), n);
      for (size_t r = 0; r < runs.size(); ++r) {
        runs[r].Add(SquaredDistance(of_run(q, r), of_run(values, r)));
      }
      whole.Add(SquaredDistance(q, values));
    }
    SCOPED_TRACE(n);
    whole.ExpectWithin(*bound);
    for (size_t r = 0; r < runs.size(); ++r) {
      SCOPED_TRACE("run " + std::to_string(r));
      runs[r].ExpectWithin(*codec_->NmseBound(of_run(values, r).size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(LosslessCodecs, LosslessConformance,
                         ::testing::ValuesIn(VariantsOf(CodecClass::kLossless)), TestName);
INSTANTIATE_TEST_SUITE_P(UnbiasedCodecs, UnbiasedConformance,
                         ::testing::ValuesIn(VariantsOf(CodecClass::kUnbiased)), TestName);

}  // namespace
}  // namespace elastiquant
