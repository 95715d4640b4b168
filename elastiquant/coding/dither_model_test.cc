#include "elastiquant/coding/dither_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <vector>

#include "elastiquant/kernels/rans/rans_kernels.h"

namespace elastiquant {
namespace {

constexpr size_t kBlocks = 500;
constexpr LaneKeys kKeys{1, 2};

std::vector<float> Draw(DitherDensity density, float mean, size_t n) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 1.2533141f * mean);
  std::exponential_distribution<float> exponential(1 / mean);
  std::bernoulli_distribution negative;
  std::vector<float> values(n);
  for (float& v : values) {
    v = density == DitherDensity::kGauss
            ? normal(generator)
            : exponential(generator) * (negative(generator) ? -1.0f : 1.0f);
  }
  return values;
}

// Words and bytes as a tile holds them.
std::vector<uint8_t> Coded(std::vector<uint8_t>& words, std::vector<uint8_t>& bytes,
                           DitherWriter* writer) {
  ReverseWords(words.data(), static_cast<size_t>(writer->words - words.data()) / 2);
  std::vector<uint8_t> coded(words.data(), writer->words);
  coded.insert(coded.end(), bytes.data(), writer->bytes);
  return coded;
}
DitherReader ReaderOf(const std::vector<uint8_t>& coded, const DitherWriter& writer) {
  DitherReader reader;
  reader.words = coded.data();
  reader.bytes = coded.data() + coded.size();
  reader.lanes = writer.lanes;
  for (size_t s = 0; s < writer.lanes; ++s) {
    reader.set_state(s, writer.states[writer.lanes - 1 - s]);
  }
  return reader;
}

// Codes blocks of the class's own scale and returns the bits a coordinate; checks that they
// come back, and that the error is that of subtractive dither.
double BitsOf(DitherDensity density, int phase, int id, size_t lanes) {
  const float scale = std::exp2(static_cast<float>(DitherScaleOf(id, phase)) / 8);
  const size_t n = kBlocks * kDitherBlock;
  const std::vector<float> values = Draw(density, scale, n);
  const DitherModel& model = GetDitherModel(density, phase);
  std::vector<uint8_t> words(4 * n), bytes(4 * n);
  DitherWriter writer{words.data(), bytes.data(), {}, lanes};
  std::fill_n(writer.states, lanes, 1u << 16);
  std::vector<int32_t> indices(n);
  for (size_t b = kBlocks; b-- > 0;) {
    const size_t at = b * kDitherBlock;
    const auto first = static_cast<uint32_t>(at);
    DitherQuantize(&values[at], kDitherBlock, kKeys, first, MakeDitherScale(1), &indices[at]);
    EncodeDitherIndices(&indices[at], ShapeOfBlock(kKeys, first, kDitherBlock), model, id,
                        &writer);
  }
  const std::vector<uint8_t> coded = Coded(words, bytes, &writer);
  DitherReader reader = ReaderOf(coded, writer);
  double error = 0;
  for (size_t b = 0; b < kBlocks; ++b) {
    const size_t at = b * kDitherBlock;
    const auto first = static_cast<uint32_t>(at);
    int32_t back[kDitherBlock];
    EXPECT_TRUE(DecodeDitherIndices(&reader, ShapeOfBlock(kKeys, first, kDitherBlock), model,
                                    id, back));
    EXPECT_TRUE(std::equal(back, back + kDitherBlock,
                           std::make_reverse_iterator(&indices[at] + kDitherBlock)));
    float decoded[kDitherBlock];
    DitherDequantize(back, kDitherBlock, kKeys, first, 1, {false, 1}, decoded);
    for (size_t i = 0; i < kDitherBlock; ++i) {
      error += std::pow(static_cast<double>(decoded[i]) - values[at + i], 2);
    }
  }
  EXPECT_EQ(reader.words, reader.bytes);
  for (size_t s = 0; s < lanes; ++s) EXPECT_EQ(reader.state(s), 1u << 16);
  EXPECT_NEAR(12 * error / static_cast<double>(n), 1, 0.02);
  return static_cast<double>(8 * coded.size()) / static_cast<double>(n);
}

TEST(DitherModel, IndicesComeBackWithTheVarianceOfDither) {
  for (auto density : {DitherDensity::kLaplace, DitherDensity::kGauss}) {
    for (int id = 1; id <= 40; ++id) BitsOf(density, id % kDitherPhases, id, id % 2 ? 1 : 128);
  }
}

// Where the step is small the rate is the differential entropy of the density.
TEST(DitherModel, WideClassesCostTheDifferentialEntropy) {
  for (int id = 20; id <= 30; ++id) {
    const double octaves = DitherScaleOf(id, kNeutralPhase) / 8.0;
    EXPECT_NEAR(BitsOf(DitherDensity::kLaplace, kNeutralPhase, id, 128),
                std::log2(2 * std::exp(1)) + octaves, 0.04)
        << id;
    EXPECT_NEAR(BitsOf(DitherDensity::kGauss, kNeutralPhase, id, 128),
                std::log2(1.2533141 * std::sqrt(2 * M_PI * std::exp(1))) + octaves, 0.04)
        << id;
  }
}

TEST(DitherModel, PartialBlocksComeBack) {
  const DitherModel& model = GetDitherModel(DitherDensity::kLaplace, 0);
  for (size_t length = 1; length <= kDitherBlock; ++length) {
    for (int id : {1, 12, 17, 18, 21, 26}) {
      const std::vector<float> values = Draw(DitherDensity::kLaplace, 40, length);
      std::vector<uint8_t> words(kMaxDitherBlockBytes), bytes(kMaxDitherBlockBytes);
      const DitherShape shape = ShapeOfBlock(kKeys, 32, length);
      int32_t indices[kDitherBlock], back[kDitherBlock];
      DitherQuantize(values.data(), length, kKeys, 32, MakeDitherScale(1), indices);
      DitherWriter writer{words.data(), bytes.data(), {1u << 16}, 1};
      EncodeDitherIndices(indices, shape, model, id, &writer);
      const std::vector<uint8_t> coded = Coded(words, bytes, &writer);
      DitherReader reader = ReaderOf(coded, writer);
      ASSERT_TRUE(DecodeDitherIndices(&reader, shape, model, id, back)) << length << " " << id;
      std::vector<float> decoded(length);
      DitherDequantize(back, length, kKeys, 32, 1, {false, 1}, decoded.data());
      for (size_t i = 0; i < length; ++i) EXPECT_NEAR(decoded[i], values[i], 0.5001);
      EXPECT_EQ(reader.words, reader.bytes);
    }
  }
}

}  // namespace
}  // namespace elastiquant
