#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/low_rank/low_rank_format.h"
#include "elastiquant/codec/low_rank/matrix_testing.h"
#include "elastiquant/codec/low_rank/symmetric_eigen.h"
#include "elastiquant/codec/low_rank/water_filling.h"

namespace elastiquant {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> FilledRates(const std::vector<double>& magnitudes, double budget) {
  std::vector<double> p(magnitudes.size());
  WaterFill(magnitudes, budget, p);
  return p;
}

double Variance(const std::vector<double>& magnitudes, const std::vector<double>& p) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (magnitudes[i] > 0) sum += magnitudes[i] * magnitudes[i] * (1 / p[i] - 1);
  }
  return sum;
}

TEST(WaterFill, GivesThePublishedExample) {
  const auto near = [](double v) { return DoubleNear(v, 1e-12); };
  EXPECT_THAT(FilledRates({5, 1, 0.5, 0.25}, 2),
              ElementsAre(1, near(4 / 7.0), near(2 / 7.0), near(1 / 7.0)));
  EXPECT_THAT(FilledRates({5, 4, 0, 0}, 3), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(FilledRates({0, 0}, 1), ElementsAre(0, 0));
  EXPECT_THAT(FilledRates({3, 3, 3, 3}, 2), ElementsAre(0.5, 0.5, 0.5, 0.5));
}

// Moving probability from any component to any other one raises the variance.
TEST(WaterFill, NoOtherProbabilitiesAreBetter) {
  std::mt19937 generator(5);
  std::exponential_distribution<double> exponential;
  for (int round = 0; round < 200; ++round) {
    std::vector<double> magnitudes(2 + static_cast<size_t>(round) % 9);
    for (double& m : magnitudes) m = std::pow(exponential(generator), 3);
    std::ranges::sort(magnitudes, std::greater());
    const double budget = 1 + round % static_cast<int>(magnitudes.size());
    const std::vector<double> p = FilledRates(magnitudes, budget);
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), budget, 1e-9);
    const double least = Variance(magnitudes, p);
    for (size_t from = 0; from < p.size(); ++from) {
      for (size_t to = 0; to < p.size(); ++to) {
        std::vector<double> other = p;
        const double moved = std::min({0.01, 1 - p[to], p[from] / 2});
        other[from] -= moved;
        other[to] += moved;
        EXPECT_GE(Variance(magnitudes, other), least * (1 - 1e-12));
      }
    }
  }
}

TEST(SymmetricEigen, VectorsAreOrthonormalAndDiagonalise) {
  constexpr size_t kSize = 70;
  const std::vector<float> drawn = GaussianValues(kSize * kSize, 3);
  std::vector<double> matrix(drawn.begin(), drawn.end()), values(kSize);
  for (size_t i = 0; i < kSize; ++i) {  // the upper triangle is not looked at
    for (size_t j = 0; j < i; ++j) matrix[i * kSize + j] = NAN;
  }
  std::vector<double> vectors = matrix;
  ASSERT_TRUE(SymmetricEigen(vectors, values).ok());
  EXPECT_TRUE(std::ranges::is_sorted(values));
  const auto at = [&](size_t i, size_t j) {
    return matrix[std::min(i, j) * kSize + std::max(i, j)];
  };
  for (size_t a = 0; a < kSize; ++a) {
    for (size_t b = 0; b < kSize; ++b) {
      double product = 0, form = 0;
      for (size_t i = 0; i < kSize; ++i) {
        product += vectors[a * kSize + i] * vectors[b * kSize + i];
        double row = 0;
        for (size_t j = 0; j < kSize; ++j) row += at(i, j) * vectors[b * kSize + j];
        form += vectors[a * kSize + i] * row;
      }
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-13);
      EXPECT_NEAR(form, a == b ? values[a] : 0, 1e-11);
    }
  }
}

// DecodedDraws of one message.
class DecodedDraws {
 public:
  DecodedDraws(const std::string& spec, TensorShape shape, std::vector<float> values)
      : codec_(CodecForShapes(MakeCodec(spec).value(), std::vector{shape}).value()),
        values_(std::move(values)),
        frame_(codec_->MaxFrameBytes(values_.size())),
        decoded_(values_.size()) {}

  const std::vector<float>& Next() {
    size_ = codec_->Encode(values_, DeriveKey(3, draw_++, 0, 0), work_, frame_).value();
    EXPECT_TRUE(DecodeFrame(std::span(frame_).first(size_), work_, decoded_).ok());
    return decoded_;
  }
  size_t frame_bytes() const { return size_; }
  const std::vector<float>& values() const { return values_; }

 private:
  std::shared_ptr<const Codec> codec_;
  std::vector<float> values_;
  std::vector<uint8_t> frame_;
  std::vector<float> decoded_;
  uint64_t draw_ = 0;
  size_t size_ = 0;
  Workspace work_;
};

TEST(AtomoSvd, VarianceAndSizeAreThoseOfTheFormula) {
  const std::vector<double> singular{5, 1, 0.5, 0.25};
  for (const TensorShape shape : {TensorShape{30, 50}, TensorShape{50, 30}}) {
    DecodedDraws draws("atomo-svd:rank=2", shape,
                       MatrixOf(shape.rows, shape.cols, singular, 2));
    constexpr int kDraws = 4000;
    double error = 0, triples = 0;
    std::vector<double> mean(draws.values().size());
    for (int t = 0; t < kDraws; ++t) {
      const std::vector<float>& decoded = draws.Next();
      error += SquaredError(decoded, draws.values());
      triples += static_cast<double>(draws.frame_bytes() - LowRankNumbersOffset(1)) / (4 * 80);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += decoded[i];
    }
    const double variance = Variance(singular, FilledRates(singular, 2));
    EXPECT_NEAR(error / kDraws, variance, 0.05 * variance);
    EXPECT_NEAR(triples / kDraws, 2, 0.05);
    double bias = 0;
    for (size_t i = 0; i < mean.size(); ++i) {
      const double b = mean[i] / kDraws - draws.values()[i];
      bias += b * b;
    }
    EXPECT_LT(bias, 4 * variance / kDraws) << "what independent draws leave is variance / n";
  }
}

// Nothing is drawn again: that would make what is sent too large on average.
TEST(AtomoSvd, SometimesNothingIsSent) {
  DecodedDraws draws("atomo-svd:rank=1", {20, 20},
                     MatrixOf(20, 20, std::vector<double>(20, 1), 4));
  const std::vector<float> zeros(400);
  int nothing = 0;
  for (int t = 0; t < 1000; ++t) {
    if (draws.Next() != zeros) continue;
    ++nothing;
    EXPECT_EQ(draws.frame_bytes(), LowRankNumbersOffset(1));
  }
  EXPECT_NEAR(nothing, 1000 * std::pow(0.95, 20), 60);
}

TEST(AtomoSvd, ManyTriplesAreSentAsTheirSum) {
  // 6 of 12 triples on average; 7 and more would be longer than the values.
  DecodedDraws draws("atomo-svd:rank=6", {12, 13},
                     MatrixOf(12, 13, std::vector<double>(12, 1), 5));
  int as_sum = 0, as_factors = 0;
  for (int t = 0; t < 200; ++t) {
    const double error = SquaredError(draws.Next(), draws.values());
    EXPECT_NEAR(error, 12, 1e-4) << "each triple is doubled or left out";
    const size_t numbers = (draws.frame_bytes() - LowRankNumbersOffset(1)) / 4;
    EXPECT_LE(numbers, 156u);
    ++(numbers == 156 ? as_sum : as_factors);
  }
  EXPECT_GT(as_sum, 20);
  EXPECT_GT(as_factors, 20);
}

// The authors' code makes a matrix of two kernels a row of a convolution. One that is of rank 1
// so comes through exactly; its output channels are of higher rank.
TEST(AtomoSvd, ConvolutionsMayBePairsOfKernels) {
  const TensorShape shape{16, 8 * 9, 9};
  const std::vector<float> values = MatrixOf(16 * 8 / 2, 2 * 9, {3}, 6);
  DecodedDraws pairs("atomo-svd:rank=1,convolutions=pairs", shape, values);
  EXPECT_LT(SquaredError(pairs.Next(), values), 1e-10);
  EXPECT_EQ(pairs.frame_bytes(), LowRankNumbersOffset(1) + 4 * (64 + 18));
  DecodedDraws rows("atomo-svd:rank=1", shape, values);
  double error = 0;
  for (int t = 0; t < 50; ++t) error += SquaredError(rows.Next(), values) / 50;
  EXPECT_GT(error, 0.1);
}

TEST(AtomoSvd, WhatHasNoPairsOfKernelsIsLeftAsItIs) {
  const std::vector<double> singular{5, 1, 0.5, 0.25};
  for (const TensorShape shape : {TensorShape{30, 50}, TensorShape{5, 45, 9}}) {
    const std::vector<float> values = MatrixOf(shape.rows, shape.cols, singular, 7);
    DecodedDraws pairs("atomo-svd:rank=2,convolutions=pairs", shape, values);
    DecodedDraws rows("atomo-svd:rank=2", shape, values);
    EXPECT_EQ(pairs.Next(), rows.Next());
  }
  EXPECT_THAT(MakeCodec("atomo-svd:convolutions=columns").status().message(),
              HasSubstr("rows or pairs"));
}

TEST(AtomoSvd, BoundIsThatOfEqualSingularValues) {
  const auto codec = MakeCodec("atomo-svd:rank=3").value();
  EXPECT_DOUBLE_EQ(*codec->NmseBound(900), 9);  // 30 x 30
  EXPECT_EQ(*codec->NmseBound(30), 0);          // not worth factors: sent as it is
  EXPECT_THAT(MakeCodec("atomo-svd:rank=0").status().message(), HasSubstr("1 to 1024"));
  EXPECT_THAT(MakeCodec("atomo-svd:factors=bf16").status().message(), HasSubstr("rank"));
  EXPECT_EQ(codec->exchange(), Exchange::kAllGather);
}

}  // namespace
}  // namespace elastiquant
