#include "elastiquant/cli/codec_analysis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "elastiquant/cli/codec_bench.h"

namespace elastiquant::cli {
namespace {

Analysis AnalysisOf(const std::string& spec, std::span<const float> values,
                    const AnalysisOptions& options = {}) {
  const auto codec = MakeCodec(spec);
  EXPECT_TRUE(codec.ok()) << codec.status().ToString();
  Workspace work;
  const auto analysis = Analyse(**codec, values, options, work);
  EXPECT_TRUE(analysis.ok()) << spec << ": " << analysis.status().ToString();
  return analysis.ok() ? *analysis : Analysis{};
}

// Rounds to 0 or 1 with even odds, but for the first.
std::vector<float> Halves(size_t n) {
  std::vector<float> values(n, 0.5f);
  values[0] = 1;
  return values;
}

TEST(Analysis, OfALosslessCodecIsExact) {
  const Analysis a = AnalysisOf("fp32", GaussianVector(1000, 1));
  EXPECT_EQ(a.nmse, 0);
  EXPECT_EQ(a.nmse_standard_error, 0);
  EXPECT_EQ(a.bias_z, 0);
  EXPECT_EQ(a.bias_share, 0);
  EXPECT_DOUBLE_EQ(a.cosine, 1);
  EXPECT_DOUBLE_EQ(a.bits_per_coordinate, 32 + 32 * 8 / 1000.0);
  EXPECT_FALSE(a.entropy.has_value());
  EXPECT_GT(a.encode_gigabytes_per_second, 0);
  EXPECT_GT(a.decode_gigabytes_per_second, 0);
}

TEST(Analysis, TheCosineHoldsWhereTheDecodedVectorIsTiny) {
  const Analysis a = AnalysisOf("fp16", std::vector<float>(5, 1e22f));  // 65504 each
  EXPECT_DOUBLE_EQ(a.cosine, 1);
}

TEST(Analysis, FindsTheErrorAndTheEntropyOfACoin) {
  const size_t n = 100000;
  const Analysis a = AnalysisOf("qsgdv:bits=2,bucket=0", Halves(n));
  EXPECT_NEAR(a.nmse, 1, 0.001);  // 0.5 away from 0.5 always
  EXPECT_NEAR(*a.entropy, 1, 0.001);
  EXPECT_NEAR(a.cosine, std::sqrt(0.5), 0.01);
  EXPECT_LT(std::abs(a.bias_z), 4);
  EXPECT_NEAR(a.bias_share, 0, 0.001);
}

TEST(Analysis, TakesTheEntropyOfEachBucketByItself) {
  std::vector<float> values = Halves(10000);
  for (size_t i = 0; i < values.size(); i += 100) values[i] = 1;
  for (size_t i = 5000; i < values.size(); ++i) values[i] *= 7;
  const Analysis a = AnalysisOf("qsgdv:bits=2,bucket=100", values);
  EXPECT_NEAR(*a.entropy, 1, 0.02);  // not a bit more for telling 1 from 7
}

TEST(Analysis, TakesTheEntropyOfStretchesOfALongBucketByThemselves) {
  // Rounded to bfloat16: 1 and its neighbour in the first stretch, 2 in the others.
  std::vector<float> values(65536, 2.0f);
  for (size_t i = 0; i < 32768; ++i) values[i] = 1.00390625f;
  const Analysis a = AnalysisOf("bf16:rounding=stochastic", values);
  EXPECT_NEAR(*a.entropy, 0.5, 0.001);
}

TEST(Analysis, HasNoEntropyWhereDecodedValuesAreNoSymbols) {
  EXPECT_FALSE(AnalysisOf("dither:bits=2", GaussianVector(5000, 1)).entropy.has_value());
}

TEST(Analysis, FlagsBiasedCodecsAndNoOthers) {
  const std::vector<float> values = GaussianVector(3000, 2);
  for (const char* spec : {"fp16", "bf16"}) {
    const Analysis a = AnalysisOf(spec, values);
    EXPECT_GT(a.bias_z, 6) << spec;
    EXPECT_NEAR(a.bias_share, 1, 1e-9) << spec;
  }
  for (const char* spec : {"bf16:rounding=stochastic", "elastic:bits=3", "qsgd", "dither"}) {
    const Analysis a = AnalysisOf(spec, values);
    EXPECT_LT(a.bias_z, 4) << spec;
    EXPECT_NEAR(a.bias_share, 0, 0.02) << spec;
  }
}

// A normal number exceeds 3.5 once in 2000 times on either side.
TEST(Analysis, RaisesNoFalseAlarms) {
  const std::vector<float> values = GaussianVector(400, 3);
  int alarms = 0;
  double sum = 0;
  constexpr int kRuns = 500;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const Analysis a = AnalysisOf("qsgd:bits=2,bucket=0", values, {.draws = 16, .seed = seed});
    alarms += a.bias_z > 3.5;
    sum += a.bias_share;
  }
  EXPECT_LE(alarms, 3);
  EXPECT_NEAR(sum / kRuns, 0, 0.005);
}

// Each draw sends one of 128 parts or none: most of the error is that of a few draws.
TEST(Analysis, RaisesNoFalseAlarmsForRareOutcomes) {
  const std::vector<float> values = GaussianVector(1 << 14, 4);
  int alarms = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const AnalysisOptions options{.draws = 16, .seed = seed};
    alarms += AnalysisOf("atomo-svd:rank=1", values, options).bias_z > 4;
    alarms += AnalysisOf("randomk:ratio=0.001", values, options).bias_z > 4;
  }
  EXPECT_EQ(alarms, 0);
}

TEST(Analysis, FindsABiasInFoldedVectors) {
  const Analysis a = AnalysisOf("bf16", GaussianVector(100000, 5), {.draws = 12});
  EXPECT_GT(a.bias_z, 8);
  EXPECT_NEAR(a.bias_share, 1, 1e-9);
}

TEST(Analysis, HoldsForZerosAndSingleValues) {
  const std::vector<float> zeros(100, 0.0f), one{-3};
  for (const char* spec : {"fp32", "bf16", "elastic", "dither", "nuqsgd|elias"}) {
    const Analysis zero = AnalysisOf(spec, zeros, {.draws = 2});
    EXPECT_EQ(zero.nmse, 0) << spec;
    EXPECT_EQ(zero.cosine, 1) << spec;
    EXPECT_EQ(zero.bias_z, 0) << spec;
    const Analysis single = AnalysisOf(spec, one, {.draws = 2});
    EXPECT_TRUE(std::isfinite(single.nmse)) << spec;
    EXPECT_TRUE(std::isfinite(single.bias_z)) << spec;
  }
}

TEST(Analysis, PassesOnWhatACodecRefuses) {
  const std::vector<float> values{1, INFINITY};
  Workspace work;
  EXPECT_EQ(Analyse(**MakeCodec("qsgd"), values, {}, work).status().code(),
            StatusCode::kNonFinite);
}

}  // namespace
}  // namespace elastiquant::cli
