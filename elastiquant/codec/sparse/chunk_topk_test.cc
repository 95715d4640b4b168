#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/sparse/chunk_geometry.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

// The reference: what is kept, as public systems ship it, a list of indices and values.
struct IndexedValue {
  int64_t index;
  float value;
};
using ValueList = std::vector<IndexedValue>;

// The indices of the chunks of a message of these tensors, side by side; of a message without
// tensors if there are none.
std::vector<std::vector<int64_t>> ChunksByHand(size_t n,
                                               const std::vector<TensorShape>& tensors,
                                               int64_t side) {
  std::vector<std::vector<int64_t>> chunks;
  std::vector<int64_t> loose;  // values that are cut as they stand, up to the next matrix
  const auto cut_loose = [&] {
    for (size_t i = 0; i < loose.size(); ++i) {
      if (i % static_cast<size_t>(side * side) == 0) chunks.emplace_back();
      chunks.back().push_back(loose[i]);
    }
    loose.clear();
  };
  int64_t begin = 0;
  for (const TensorShape& shape : tensors) {
    const auto rows = static_cast<int64_t>(shape.rows), cols = static_cast<int64_t>(shape.cols);
    if (rows % side == 0 && cols % side == 0) {
      cut_loose();
      for (int64_t top = 0; top < rows; top += side) {
        for (int64_t left = 0; left < cols; left += side) {
          chunks.emplace_back();
          for (int64_t i = 0; i < side * side; ++i) {
            chunks.back().push_back(begin + (top + i / side) * cols + left + i % side);
          }
        }
      }
    } else {
      for (int64_t i = 0; i < rows * cols; ++i) loose.push_back(begin + i);
    }
    begin += rows * cols;
  }
  for (; begin < static_cast<int64_t>(n); ++begin) loose.push_back(begin);
  cut_loose();
  return chunks;
}

// Of each chunk its part of k of side^2, rounded up: the largest, the first of equal ones, and
// no zeros.
std::vector<ValueList> KeptByHand(const std::vector<float>& values,
                                  const std::vector<TensorShape>& tensors, int64_t side,
                                  int64_t k) {
  std::vector<ValueList> lists;
  for (std::vector<int64_t> chunk : ChunksByHand(values.size(), tensors, side)) {
    const auto at = [&](int64_t i) { return values[static_cast<size_t>(i)]; };
    const auto size = static_cast<int64_t>(chunk.size());
    std::ranges::stable_sort(
        chunk, [&](int64_t a, int64_t b) { return std::abs(at(a)) > std::abs(at(b)); });
    chunk.resize(static_cast<size_t>((size * k + side * side - 1) / (side * side)));
    std::erase_if(chunk, [&](int64_t i) { return at(i) == 0; });
    lists.emplace_back();
    for (const int64_t i : chunk) lists.back().push_back({i, at(i)});
  }
  return lists;
}

float NearestBf16(double value) {
  auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
  return std::bit_cast<float>(std::max(bits, 0x10000u));
}

// The formula of docs/codecs.md, word by word.
void RoundByHand(int bits, std::vector<ValueList>* lists) {
  const size_t bins = size_t{1} << (bits - 1);
  const auto bin_of = [&](float v, float scale) {
    const float factor = static_cast<float>(4 * bins) / static_cast<float>(4 + 3 * bits);
    const float place = std::min(std::abs(v) / scale * factor, static_cast<float>(bins - 1));
    return static_cast<size_t>(place);
  };
  std::vector<float> scales;
  std::vector<double> products(bins), squares(bins);
  for (const ValueList& list : *lists) {
    double sum = 0;
    for (const auto& [index, v] : list) sum += static_cast<double>(v) * static_cast<double>(v);
    const float scale =
        list.empty() ? 0 : NearestBf16(std::sqrt(sum / static_cast<double>(list.size())));
    scales.push_back(scale);
    for (const auto& [index, v] : list) {
      products[bin_of(v, scale)] += static_cast<double>(scale) * std::abs(v);
      squares[bin_of(v, scale)] += static_cast<double>(scale) * scale;
    }
  }
  for (size_t c = 0; c < lists->size(); ++c) {
    for (auto& [index, v] : (*lists)[c]) {
      const size_t bin = bin_of(v, scales[c]);
      const auto level = static_cast<float>(products[bin] / squares[bin]);
      v = std::copysign(level * scales[c], v);
    }
  }
}

std::vector<float> Dense(const std::vector<ValueList>& lists, size_t n) {
  std::vector<float> values(n);
  for (const ValueList& list : lists) {
    for (const auto& [index, value] : list) values[static_cast<size_t>(index)] = value;
  }
  return values;
}

std::string SpecOf(int64_t side, int64_t k, const std::string& bits) {
  return "chunktopk:chunk=" + std::to_string(side * side) + ",k=" + std::to_string(k) +
         ",bits=" + bits;
}

std::shared_ptr<const Codec> ForShapes(const std::string& spec,
                                       const std::vector<TensorShape>& tensors) {
  const auto codec = Make(spec);
  return tensors.empty() ? codec : CodecForShapes(codec, tensors).value();
}

// Vectors whose largest magnitudes are hard to find or to round.
std::vector<std::vector<float>> NastyVectors(size_t n) {
  std::vector<float> ties(n), few(n), falling(n), tiny(n), one(n);
  for (size_t i = 0; i < n; ++i) {
    ties[i] = static_cast<float>(static_cast<int>(i * 7 % 5) - 2);
    few[i] = i % 97 == 0 ? 0x1p-40f * static_cast<float>(i % 13) : -0.0f;
    falling[i] = (i % 2 == 0 ? 1.0f : -1.0f) / static_cast<float>(i + 1);
    tiny[i] = 0x1p-149f * static_cast<float>(i % 9);
  }
  if (n > 0) one[n / 2] = -3;
  return {Gaussian(n),
          std::vector<float>(n, -2.0f),
          std::vector<float>(n),
          ties,
          few,
          falling,
          tiny,
          one};
}

TEST(ChunkTopK, KeepsTheLargestOfEachChunkAndOfEqualOnesTheFirst) {
  for (size_t n : {0u, 1u, 2u, 63u, 64u, 65u, 255u, 256u, 257u, 4095u, 4096u, 4097u, 10000u}) {
    for (const std::vector<float>& values : NastyVectors(n)) {
      for (const auto& [side, k] : {std::pair<int64_t, int64_t>{8, 3}, {16, 256}, {64, 64}}) {
        ASSERT_EQ(RoundTrip(SpecOf(side, k, "exact"), values),
                  Dense(KeptByHand(values, {}, side, k), n))
            << n << " " << side;
      }
    }
  }
}

TEST(ChunkTopK, RoundsAsTheFormulaSays) {
  for (size_t n : {1u, 64u, 1000u, 4097u, 30000u}) {
    for (const std::vector<float>& values : NastyVectors(n)) {
      for (int bits = 1; bits <= 8; ++bits) {
        auto lists = KeptByHand(values, {}, 16, 10);
        RoundByHand(bits, &lists);
        ASSERT_EQ(RoundTrip(SpecOf(16, 10, std::to_string(bits)), values), Dense(lists, n))
            << n << " " << bits;
      }
    }
  }
}

// Tensors that are blocks, that are not, and that go together.
const std::vector<std::vector<TensorShape>>& Messages() {
  static const std::vector<std::vector<TensorShape>> messages = {
      {{64, 64}},
      {{1, 5000}},
      {{128, 192}},
      {{1, 100}, {64, 128}, {64, 128}, {128, 64}, {30, 64}, {1, 64}, {64, 192}, {1, 1}},
      {{0, 64}, {64, 64}, {7, 11}, {1, 5000}, {320, 64}}};
  return messages;
}
size_t LengthOf(const std::vector<TensorShape>& tensors) {
  size_t n = 0;
  for (const TensorShape& shape : tensors) n += shape.rows * shape.cols;
  return n;
}

TEST(ChunkTopK, ChunksOfMatricesAreBlocks) {
  for (const std::vector<TensorShape>& tensors : Messages()) {
    const size_t n = LengthOf(tensors);
    for (const std::vector<float>& values : NastyVectors(n)) {
      const auto exact = ForShapes(SpecOf(64, 64, "exact"), tensors);
      const std::vector<uint8_t> frame = Encode(*exact, values, {1});
      auto lists = KeptByHand(values, tensors, 64, 64);
      ASSERT_EQ(Decode(frame, n), Dense(lists, n));
      std::vector<float> sum = Gaussian(n, 3), expected = sum;
      for (const ValueList& list : lists) {
        for (const auto& [index, v] : list) {
          const float product = -0.3f * v;
          expected[static_cast<size_t>(index)] += product;
        }
      }
      Workspace work(2);
      ASSERT_TRUE(DecodeAddFrame(frame, -0.3f, work, sum).ok());
      ASSERT_EQ(sum, expected);
      RoundByHand(2, &lists);
      const auto two_bits = ForShapes(SpecOf(64, 64, "2"), tensors);
      ASSERT_EQ(Decode(Encode(*two_bits, values, {1}), n), Dense(lists, n));
    }
  }
}

// Of several tiles, which threads take in any order.
TEST(ChunkTopK, FramesDoNotDependOnThreads) {
  const std::vector<TensorShape> tensors = {{1, 70000}, {640, 1280}, {1, 12345}, {1280, 640}};
  const std::vector<float> values = Gaussian(LengthOf(tensors));
  for (const char* spec :
       {"chunktopk", "chunktopk:k=400,bits=8", "chunktopk:k=32,bits=exact"}) {
    const auto codec = ForShapes(spec, tensors);
    const std::vector<uint8_t> frame = Encode(*codec, values, {1}, 1);
    for (int threads : {2, 3, 8}) {
      ASSERT_EQ(Encode(*codec, values, {1}, threads), frame) << spec << " " << threads;
      ASSERT_EQ(Decode(frame, values.size(), threads), Decode(frame, values.size())) << spec;
    }
  }
}

// Workers that train with error feedback, by frames, and by lists of indices and values as they
// stand: the weights are the same to the bit after each step.
TEST(ChunkTopK, UpdatesAreThoseOfListsOfIndicesAndValues) {
  constexpr int kWorkers = 3, kSteps = 25;
  constexpr float kDecay = 0.95f, kShare = 1.0f / kWorkers;
  const std::vector<TensorShape> tensors = {{128, 64}, {1, 200}, {64, 192}};
  const size_t n = LengthOf(tensors);
  for (const std::string bits : {"2", "exact"}) {
    const auto codec = ForShapes(SpecOf(64, 64, bits) + "|ef:decay=0.95", tensors);
    std::vector<std::vector<float>> memory(kWorkers, std::vector<float>(n)), kept = memory;
    std::vector<float> weights = Gaussian(n, 7), expected = weights;
    Workspace work;
    for (unsigned step = 0; step < kSteps; ++step) {
      for (unsigned w = 0; w < kWorkers; ++w) {
        const std::vector<float> values = Gaussian(n, 100 * step + w);
        std::vector<float> after(n), u(n);
        const std::span<const float> before[] = {memory[w]};
        const std::span<float> next[] = {after};
        std::vector<uint8_t> frame(codec->MaxFrameBytes(n));
        frame.resize(codec->EncodeNext(values, {step}, work, frame, before, next).value());
        ASSERT_TRUE(DecodeAddFrame(frame, -kShare, work, weights).ok());
        memory[w] = after;

        for (size_t i = 0; i < n; ++i) {
          const float carried = kDecay * kept[w][i];
          u[i] = values[i] + carried;
        }
        auto lists = KeptByHand(u, tensors, 64, 64);
        if (bits != "exact") RoundByHand(std::stoi(bits), &lists);
        for (const ValueList& list : lists) {
          for (const auto& [index, v] : list) {
            const auto i = static_cast<size_t>(index);
            u[i] -= v;
            const float product = -kShare * v;
            expected[i] += product;
          }
        }
        kept[w] = u;
        ASSERT_EQ(memory[w], kept[w]) << bits << ", step " << step;
      }
      ASSERT_EQ(weights, expected) << bits << ", step " << step;
    }
  }
}

double TimesFewerBytes(const std::string& spec, const std::vector<float>& values) {
  const double fp32 = 4.0 * static_cast<double>(values.size());
  return fp32 / static_cast<double>(Encode(*Make(spec), values, {1}).size());
}

// The settings of the publications, of values without any order: real ones cluster.
TEST(ChunkTopK, TakesTheBytesThatItShould) {
  const std::vector<float> values = Gaussian(size_t{1} << 22);
  EXPECT_GT(TimesFewerBytes("chunktopk:k=64,bits=2", values), 213);
  EXPECT_GT(TimesFewerBytes("chunktopk:k=16,bits=exact", values), 190);
  EXPECT_GT(TimesFewerBytes("chunktopk:k=32,bits=exact", values), 120);
  // 64 values on their own pay for headers and tables, but not much.
  const std::vector<float> few(values.begin(), values.begin() + 4096);
  EXPECT_GT(TimesFewerBytes("chunktopk:k=64,bits=2", few), 70);
}

TEST(ChunkTopK, MoreBitsAreCloser) {
  std::vector<float> values = Gaussian(100000);
  for (float& v : values) v = v * v * v;  // with a heavy tail
  const std::vector<float> kept = RoundTrip(SpecOf(64, 64, "exact"), values);
  double error = 1;
  for (int bits = 1; bits <= 8; ++bits) {
    const double next = Nmse(kept, RoundTrip(SpecOf(64, 64, std::to_string(bits)), values));
    EXPECT_LT(next, error) << bits;
    error = next;
  }
  EXPECT_LT(error, 1e-3);
}

TEST(ChunkTopK, WhatFewBitsCannotHoldIsRefused) {
  constexpr float kMax = std::numeric_limits<float>::max();
  std::vector<float> values(5000, 1e30f);
  values[7] = kMax;
  Workspace work;
  for (const char* spec : {"chunktopk:chunk=1,k=1,bits=1", "chunktopk:bits=exact"}) {
    const auto codec = Make(spec);
    std::vector<uint8_t> frame(codec->MaxFrameBytes(values.size()));
    const auto size = codec->Encode(values, {1}, work, frame);
    if (size.ok()) {
      EXPECT_EQ(Decode({frame.begin(), frame.begin() + static_cast<long>(*size)}, 5000)[7],
                kMax)
          << spec;
    } else {
      EXPECT_EQ(size.status().code(), StatusCode::kOutOfRange) << spec;
      EXPECT_THAT(size.status().message(), HasSubstr("bits=exact"));
    }
  }
}

TEST(ChunkTopK, SaysWhatItTakes) {
  for (const char* bad : {"chunk=0", "chunk=32769", "chunk=x", "k=0", "k=4097", "chunk=10,k=11",
                          "bits=0", "bits=9", "bits=two"}) {
    const auto codec = MakeCodec("chunktopk:" + std::string(bad));
    EXPECT_EQ(codec.status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(codec.status().message(), HasSubstr("use ")) << bad;
  }
  EXPECT_EQ(Make("chunktopk")->spec(), "chunktopk:chunk=4096,k=64,bits=2");
  EXPECT_EQ(Make("chunktopk")->exchange(), Exchange::kAllGather);
  EXPECT_EQ(Make("chunktopk:bits=exact")->exchange(), Exchange::kSparse);
}

// A count of 32 bits would wrap, and leave chunks out that are then neither sent nor written.
TEST(ChunkTopK, TheLongestMessageHasAllItsChunks) {
  for (const uint32_t chunk : {1u, 64u, 4096u, 32768u}) {
    const PlacedRun run = WholeRun(kMaxFrameElements);
    const ChunkGeometry geometry({chunk, 1}, std::span(&run, 1));
    EXPECT_EQ(geometry.chunks(), (kMaxFrameElements + chunk - 1) / chunk) << chunk;
  }
}

TEST(ChunkTopK, MadeForShapesItTakesNoOtherMessage) {
  const auto codec = ForShapes("chunktopk", {{64, 64}});
  std::vector<uint8_t> frame(100000);
  Workspace work;
  EXPECT_THAT(codec->Encode(std::vector<float>(4095), {1}, work, frame).status().message(),
              HasSubstr("4096 values, but a message of 4095"));
}

TEST(ChunkTopK, DamageIsRefusedOrHarmless) {
  const std::vector<TensorShape> tensors = {{1, 20}, {8, 16}, {1, 40}};
  std::vector<float> values = Gaussian(LengthOf(tensors));
  const auto every = [](size_t at) { return at < 32 ? 0 : 5; };
  for (const char* bits : {"1", "2", "4", "exact"}) {
    for (const float zeros : {0.0f, 1.0f}) {  // with counts that are listed, and without
      for (size_t i = 20; i < 84; ++i) values[i] *= zeros;
      const auto codec = ForShapes(SpecOf(8, 5, bits), tensors);
      const std::vector<uint8_t> frame = Encode(*codec, values, {1});
      EXPECT_GT(ExpectDamageIsRefusedOrHarmless(frame, values.size(), every), 50u);
      values = Gaussian(LengthOf(tensors));
    }
  }
}

// Runs that are no message, each with a right checksum.
TEST(ChunkTopK, RunsMustBeThoseOfTheMessage) {
  const std::vector<float> values = Gaussian(20 + 8 * 16);
  const auto codec = ForShapes(SpecOf(8, 5, "2"), {{1, 20}, {8, 16}});
  const std::vector<uint8_t> good = Encode(*codec, values, {1});
  constexpr size_t kRuns = 48;  // behind header and parameters
  using Runs = std::array<uint32_t, 4>;
  for (const Runs& runs : {Runs{0, 0, 8, 16}, Runs{19, 0, 8, 16}, Runs{21, 0, 8, 16},
                           Runs{20, 0, 16, 8}, Runs{20, 0, 4, 32}, Runs{20, 0, 128, 1},
                           Runs{20, 0, ~0u, ~0u}, Runs{~0u, 0, 8, 16}, Runs{20, 0, 0, 16}}) {
    std::vector<uint8_t> bad = good;
    std::memcpy(bad.data() + kRuns, runs.data(), sizeof(runs));
    FixFrameChecksum(bad);
    Workspace work;
    std::vector<float> decoded(values.size());
    const Status status = DecodeFrame(bad, work, decoded);
    // Two blocks beside each other are as many as one above the other.
    const bool other = runs == Runs{20, 0, 16, 8};
    EXPECT_EQ(status.code(), other ? StatusCode::kOk : StatusCode::kCorruptData);
  }
}

}  // namespace
}  // namespace elastiquant
