#include "elastiquant/kernels/dither/dither_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "elastiquant/kernels/dither/dither_scalar.h"
#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/kernel_testing.h"
#include "elastiquant/kernels/rans/rans_kernels.h"

namespace elastiquant {
namespace {

// Frequencies of every shape: even, one symbol with nearly all, random.
std::unique_ptr<DitherModel> MakeModel(unsigned seed) {
  auto model = std::make_unique<DitherModel>();
  std::mt19937 generator(seed);
  for (int id = 1; id < kDitherClasses; ++id) {
    const DitherClass c = DitherClassOf(id);
    const auto symbols = static_cast<uint32_t>(c.symbols());
    for (uint32_t bin = 0; bin < c.bins; ++bin) {
      std::vector<uint32_t> frequencies(symbols, 1);
      uint32_t left = kRansScale - symbols;
      const auto favourite = static_cast<unsigned>(generator()) % symbols;
      while (left > 0) {
        const uint32_t part = std::min<uint32_t>(left, 1 + generator() % 512);
        const unsigned s = seed % 3 == 0 ? favourite : static_cast<unsigned>(generator());
        frequencies[s % symbols] += part;
        left -= part;
      }
      uint32_t start = 0;
      for (uint32_t s = 0; s < symbols; start += frequencies[s++]) {
        if (id <= kDitherNarrow) {
          model->narrow[id][s][bin] = static_cast<uint16_t>(start << 4 | s);
        } else {
          model->wide[id][bin * symbols + s] = static_cast<uint16_t>(start);
        }
      }
    }
  }
  return model;
}

// Mostly within reach, with escapes and extremes among them.
std::vector<int32_t> MakeIndices(const DitherClass& c, std::mt19937& generator) {
  std::vector<int32_t> indices(kDitherBlock);
  const int reach = (c.reach + 1) << c.raw;
  const int wild = static_cast<int>(generator() % 4);
  for (int32_t& k : indices) {
    k = std::uniform_int_distribution<int32_t>(-reach, reach)(generator);
    if (wild == 0 && generator() % 50 == 0) {
      k = std::uniform_int_distribution<int32_t>(-(1 << 23), 1 << 23)(generator);
    }
    if (wild > 1) k /= 2;
  }
  return indices;
}

struct Stream {
  Stream(size_t blocks, size_t lanes)
      : words(blocks * kMaxDitherBlockBytes), bytes(words.size()) {
    writer.words = words.data();
    writer.bytes = bytes.data();
    writer.lanes = lanes;
    std::fill_n(writer.states, lanes, kRansLow);
  }
  std::vector<uint8_t> Coded() {
    const auto size = static_cast<size_t>(writer.words - words.data());
    ReverseWords(words.data(), size / 2);
    std::vector<uint8_t> coded;
    coded.reserve(words.size() + bytes.size() + 1);  // data() must not be null
    coded.insert(coded.end(), words.data(), writer.words);
    coded.insert(coded.end(), bytes.data(), writer.bytes);
    return coded;
  }
  std::vector<uint8_t> words, bytes;
  DitherWriter writer;
};

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

// Blocks of all classes, full ones and others.
constexpr size_t kBlocks = 120;
int IdOf(size_t block) { return 1 + static_cast<int>(block * 7 % 41); }
DitherShape ShapeOf(size_t block) {
  return PlainShape(block % 5 == 3 ? 1 + block * 11 % 128 : 128);
}

class DitherKernels : public ::testing::TestWithParam<size_t> {};

TEST_P(DitherKernels, EncoderMatchesScalarAndComesBack) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const auto model = MakeModel(seed);
    std::mt19937 generator(seed);
    std::vector<std::vector<int32_t>> blocks;
    for (size_t b = 0; b < kBlocks; ++b) {
      blocks.push_back(MakeIndices(DitherClassOf(IdOf(b)), generator));
    }
    Stream expected(kBlocks, GetParam());
    for (size_t b = kBlocks; b-- > 0;) {
      scalar::EncodeDitherSymbols(blocks[b].data(), ShapeOf(b), *model, IdOf(b),
                                  &expected.writer);
    }
    const auto words = static_cast<size_t>(expected.writer.words - expected.words.data());
    ForEachTarget([&] {
      Stream stream(kBlocks, GetParam());
      for (size_t b = kBlocks; b-- > 0;) {
        EncodeDitherIndices(blocks[b].data(), ShapeOf(b), *model, IdOf(b), &stream.writer);
      }
      ASSERT_EQ(static_cast<size_t>(stream.writer.words - stream.words.data()), words);
      EXPECT_TRUE(std::equal(stream.words.begin(),
                             stream.words.begin() + static_cast<ptrdiff_t>(words),
                             expected.words.begin()));
      EXPECT_TRUE(std::equal(stream.writer.states, stream.writer.states + GetParam(),
                             expected.writer.states));
      const std::vector<uint8_t> coded = stream.Coded();
      DitherReader reader = ReaderOf(coded, stream.writer);
      for (size_t b = 0; b < kBlocks; ++b) {
        int32_t back[kDitherBlock];
        ASSERT_TRUE(DecodeDitherIndices(&reader, ShapeOf(b), *model, IdOf(b), back)) << b;
        for (size_t place = 0; place < kDitherBlock; ++place) {
          if (!scalar::IsPresent(ShapeOf(b), place / 16, place % 16)) continue;
          if (place / 16 >= ShapeOf(b).rows) continue;
          ASSERT_EQ(back[place], blocks[b][DitherTurn(place)]) << b << " " << IdOf(b);
        }
      }
      EXPECT_EQ(reader.words, reader.bytes);
      for (size_t s = 0; s < GetParam(); ++s) EXPECT_EQ(reader.state(s), kRansLow);
    });
  }
}

// Any bytes decode to the same symbols and states on all targets, or to an error.
TEST_P(DitherKernels, DecoderMatchesScalarOnAnyBytes) {
  std::mt19937 generator(1);
  for (unsigned round = 0; round < 20; ++round) {
    const auto model = MakeModel(round);
    std::vector<uint8_t> noise(generator() % 6000);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(generator());
    Stream start(0, GetParam());
    for (size_t s = 0; s < GetParam(); ++s) {
      start.writer.states[s] =
          kRansLow + static_cast<uint32_t>(generator()) % (0xFFFFFFFF - kRansLow);
    }
    ForEachTarget([&] {
      DitherReader reader = ReaderOf(noise, start.writer);
      DitherReader expected = reader;
      for (size_t b = 0; b < kBlocks; ++b) {
        const DitherClass c = DitherClassOf(IdOf(b));
        int32_t indices[kDitherBlock], symbols[kDitherBlock];
        bool escaped;
        expected.bytes = reader.bytes;
        const bool words_last = scalar::DecodeDitherSymbols(&expected, ShapeOf(b), *model,
                                                            IdOf(b), symbols, &escaped);
        const bool decoded = DecodeDitherIndices(&reader, ShapeOf(b), *model, IdOf(b), indices);
        if (!decoded) break;
        ASSERT_TRUE(words_last);
        ASSERT_EQ(reader.words, expected.words);
        ASSERT_LE(reader.words, reader.bytes);
        for (size_t s = 0; s < GetParam(); ++s) ASSERT_EQ(reader.state(s), expected.state(s));
        for (size_t place = 0; place < 16 * ShapeOf(b).rows; ++place) {
          if (symbols[place] == c.reach + 1) continue;
          ASSERT_EQ(indices[place] >> c.raw, symbols[place]) << IdOf(b) << " " << place;
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Lanes, DitherKernels, ::testing::Values(1, 8, 16, 32, 64, 128));

std::vector<float> NastyValues(size_t n, float scale, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    values[i] = normal(generator) * scale;
    if (i % 13 == 5) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
    if (i % 17 == 3) values[i] = scale * static_cast<float>(static_cast<int>(i) - 60);
    if (i % 29 == 7) values[i] = std::numeric_limits<float>::denorm_min();
  }
  return values;
}

TEST(DitherQuantizer, MatchesScalar) {
  for (float step : {1.0f, 0.37f, 3e-44f, 1e-30f, 1e30f}) {
    for (size_t length = 1; length <= kDitherBlock; ++length) {
      const auto values = NastyValues(length, 2 * step, static_cast<unsigned>(length));
      const auto first = static_cast<uint32_t>(length * 48);
      const DitherScale scale = MakeDitherScale(step);
      std::vector<int32_t> expected(kDitherBlock, 77);
      scalar::DitherQuantize(values.data(), 0, length, kTestKeys, first, scale,
                             expected.data());
      ForEachTarget([&] {
        std::vector<int32_t> indices(kDitherBlock, 77);
        DitherQuantize(values.data(), length, kTestKeys, first, scale, indices.data());
        EXPECT_EQ(indices, expected) << length;
      });
    }
  }
}

TEST(DitherQuantizer, DequantizerMatchesScalarAndInverts) {
  std::mt19937 generator(3);
  for (float step : {1.0f, 0.37f, 3e-44f, 1e30f}) {
    for (size_t length = 1; length <= kDitherBlock; ++length) {
      std::vector<int32_t> indices(kDitherBlock);
      for (int32_t& k : indices) {
        const int32_t most = length % 2 == 0 ? 9 : kMaxDitherIndex;
        k = std::uniform_int_distribution<int32_t>(-most, most)(generator);
      }
      for (DitherSink sink : {DitherSink{false, 1}, DitherSink{true, 0.3f}}) {
        std::vector<float> expected = NastyValues(length, step, 1);
        const std::vector<float> before = expected;
        scalar::DitherDequantize(indices.data(), 0, length, kTestKeys, 160, step, sink,
                                 expected.data());
        ForEachTarget([&] {
          std::vector<float> values = before;
          DitherDequantize(indices.data(), length, kTestKeys, 160, step, sink, values.data());
          EXPECT_EQ(std::memcmp(values.data(), expected.data(), length * 4), 0) << length;
        });
      }
    }
  }
}

TEST(DitherQuantizer, ClassesMatchScalar) {
  std::vector<float> means{0,          1,          1.1892070f,
                           1.1892071f, 1.1892072f, 1.6817928f,
                           1.6817929f, kMaxFloat,  std::numeric_limits<float>::denorm_min(),
                           1e-40f,     1e-20f};
  for (int i = 0; i < 500; ++i) means.push_back(std::exp2(static_cast<float>(i) / 16 - 15));
  for (float step : {1.0f, 1e-44f, 1e-30f, 1e30f}) {
    for (float shift : {1.0f, 1.0905077f}) {
      const DitherScale scale = MakeDitherScale(step);
      std::vector<uint8_t> expected;
      for (float mean : means) expected.push_back(scalar::DitherClassFor(mean, scale, shift));
      ForEachTarget([&] {
        std::vector<uint8_t> classes(means.size());
        DitherClasses(means.data(), means.size(), scale, shift, classes.data());
        EXPECT_EQ(classes, expected) << step;
      });
    }
  }
  EXPECT_EQ(scalar::DitherClassFor(1, {1, 1}, 1), kDitherUnitClass);
}

TEST(DitherQuantizer, BlockMeansMatchScalar) {
  for (size_t n : {0u, 1u, 15u, 127u, 128u, 129u, 256u, 1000u, 5300u}) {
    for (float scale : {1.0f, 1e-42f, kMaxFloat / 80, std::numeric_limits<float>::infinity()}) {
      std::vector<float> values = NastyValues(n, scale, 5);
      if (n > 200) std::fill_n(values.begin() + 128, 72, kMaxFloat);
      const size_t blocks = (n + kDitherBlock - 1) / kDitherBlock;
      std::vector<float> expected(blocks);
      for (size_t b = 0; b < blocks; ++b) {
        expected[b] = scalar::DitherBlockMean(values.data() + b * kDitherBlock,
                                              std::min(kDitherBlock, n - b * kDitherBlock));
      }
      ForEachTarget([&] {
        std::vector<float> means(blocks);
        DitherBlockMeans(values.data(), n, means.data());
        for (size_t b = 0; b < blocks; ++b) {
          if (std::isnan(expected[b])) {
            EXPECT_TRUE(std::isnan(means[b]));
          } else {
            EXPECT_EQ(means[b], expected[b]) << n << " " << b;
          }
        }
      });
    }
  }
}

// Runs of a few blocks, by the scalar definition.
struct ScalarRun {
  ScalarRun(const std::vector<float>& values, const DitherRun& run, float step,
            const DitherModel& model, int id, size_t lanes)
      : stream(run.count, lanes), decoded(values.size()) {
    constexpr DitherShape kFull{kDitherBlock / kDitherRow, 0xFFFF};
    for (size_t i = run.count; i-- > 0;) {
      const size_t at = run.blocks[i] * kDitherBlock;
      const uint32_t first = run.first + static_cast<uint32_t>(at);
      int32_t turned[kDitherBlock], indices[kDitherBlock];
      scalar::DitherQuantize(values.data() + at, 0, kDitherBlock, kTestKeys, first,
                             MakeDitherScale(step), turned);
      const bool escaped =
          scalar::EncodeDitherSymbols(turned, kFull, model, id, &stream.writer);
      scalar::AppendDitherRest(turned, kFull, id, escaped, &stream.writer);
      std::reverse_copy(turned, turned + kDitherBlock, indices);
      scalar::DitherDequantize(indices, 0, kDitherBlock, kTestKeys, first, step, {false, 1},
                               decoded.data() + at);
    }
  }
  Stream stream;
  std::vector<float> decoded;
};

// Steps that are rescaled, and on both sides of those whose values may be denormal, among them.
TEST(DitherRuns, MatchScalarAndComeBack) {
  constexpr uint16_t kOrder[] = {0, 2, 3};
  const auto model = MakeModel(1);
  for (float step : {1.0f, 0.37f, 1e30f, 0x1p-101f, 0x1.8p-103f, 3e-44f}) {
    for (int id = 1; id < 28; ++id) {
      for (size_t lanes : {8u, 32u, 64u, 128u}) {
        const float scale = step * std::exp2(static_cast<float>(id - kDitherUnitClass) / 2);
        const auto values = NastyValues(4 * kDitherBlock, id % 2 == 0 ? scale : scale / 40, 7);
        const DitherRun run{kOrder, 3, 640, nullptr};
        ScalarRun expected(values, run, step, *model, id, lanes);
        const std::vector<uint8_t> coded = expected.stream.Coded();
        ForEachTarget([&] {
          Stream stream(run.count, lanes);
          EncodeDitherRun(values.data(), run, kTestKeys, MakeDitherScale(step), *model, id,
                          &stream.writer);
          ASSERT_EQ(stream.Coded(), coded) << step << " " << id;
          for (DitherSink sink : {DitherSink{false, 1}, DitherSink{true, 0.3f}}) {
            std::vector<float> decoded(values.size(), step), sums = decoded;
            DitherReader reader = ReaderOf(coded, stream.writer);
            ASSERT_TRUE(DecodeDitherRun(&reader, run, kTestKeys, step, sink, *model, id,
                                        decoded.data()));
            for (uint16_t b : kOrder) {
              for (size_t i = b * kDitherBlock; i < (b + 1u) * kDitherBlock; ++i) {
                const float value = sink.weight * expected.decoded[i];
                sums[i] = sink.add ? sums[i] + value : expected.decoded[i];
              }
            }
            EXPECT_EQ(std::memcmp(decoded.data(), sums.data(), 4 * sums.size()), 0)
                << step << " " << id << " " << lanes;
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace elastiquant
