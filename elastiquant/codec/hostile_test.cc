// Frames that were made to do harm: behind a right checksum, each must be refused, with the
// same words on every SIMD target. (Damage at random:
// Conformance.HostileBytesAreDecodedOrRefused.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "elastiquant/base/bytes.h"
#include "elastiquant/codec/dither/dither_format.h"
#include "elastiquant/codec/elastic/elastic_format.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/codec/sparse/chunk_format.h"
#include "elastiquant/kernels/rans/rans_kernels.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

template <typename... Fields>
std::vector<uint8_t> BytesOf(const Fields&... fields) {
  std::vector<uint8_t> bytes((sizeof(fields) + ... + 0));
  ByteWriter writer(bytes);
  (writer.Write(fields), ...);
  return bytes;
}

std::vector<uint8_t> Sealed(CodecId codec, size_t elements,
                            const std::vector<uint8_t>& parameters,
                            const std::vector<uint8_t>& payload, uint8_t flags = 0) {
  const size_t at = FramePayloadOffset(parameters.size());
  std::vector<uint8_t> frame(at + payload.size());
  std::ranges::copy(payload, frame.begin() + static_cast<ptrdiff_t>(at));
  FrameView view;
  view.codec = codec;
  view.flags = flags;
  view.elements = elements;
  view.parameters = parameters;
  view.payload = payload;
  frame.resize(SealFrame(view, frame));
  return frame;
}

void ExpectRefused(std::span<const uint8_t> frame, size_t elements, const char* why) {
  Workspace work;
  for (const std::string& target : SimdTargets()) {
    ASSERT_TRUE(UseSimdTarget(target).ok());
    std::vector<float> values(elements, 0.5f);
    for (const Status& status :
         {DecodeFrame(frame, work, values), DecodeAddFrame(frame, 0.5f, work, values)}) {
      EXPECT_EQ(status.code(), StatusCode::kCorruptData) << target;
      EXPECT_THAT(status.message(), HasSubstr(why)) << target;
    }
  }
  ASSERT_TRUE(UseSimdTarget("auto").ok());
}

// A digit d of base r stands for (2 d - (r - 1)) / (r - 1): with base 1 that is 0 / 0.
TEST(HostileFrame, SumsOfDigitsOfBaseOneOrTwoAreRefused) {
  constexpr uint8_t kRans = 2, kOneCode = 1;
  for (const uint8_t base : {uint8_t{1}, uint8_t{2}}) {
    const auto parameters =
        BytesOf(static_cast<uint8_t>(base - 1), kRans, uint16_t{0}, uint32_t{0}, 0.0f);
    const auto payload = BytesOf(uint64_t{2}, 1.0f, kOneCode, uint8_t{0});
    ExpectRefused(Sealed(CodecId::kInnovation, 40, parameters, payload), 40, "digits");
  }
}

// There is memory for a list before it is read: no more than in proportion to the values.
TEST(HostileFrame, ListsOfMoreThanThereAreValuesAreRefused) {
  std::vector<uint8_t> tensors(4 * 2001);
  for (size_t i = 0; i < 2001; ++i) tensors[4 * i] = 1;
  const uint32_t count = 2000;
  std::memcpy(tensors.data(), &count, sizeof(count));
  const auto elastic = WriteElasticParameters(ElasticFormat());
  ExpectRefused(
      Sealed(CodecId::kElastic, 1, {elastic.begin(), elastic.end()}, tensors, kElasticByTensor),
      1, "more tensors than values");

  ChunkFormat format;
  format.rule = {.chunk = 64, .kept = 1};
  format.runs = 2000;
  const auto chunks = WriteChunkParameters(format);
  ExpectRefused(Sealed(CodecId::kChunks, 1, {chunks.begin(), chunks.end()},
                       std::vector<uint8_t>(2000 * kChunkRunBytes)),
                1, "more runs than values");
}

// A tile of the dither codec: one full block of class `id`, whose indices are all `index`.
std::vector<uint8_t> DitherTile(int id, int32_t index, size_t lanes) {
  std::vector<uint8_t> words(2 * kMaxDitherBlockBytes), bytes(words.size());
  DitherWriter writer;
  writer.words = words.data();
  writer.bytes = bytes.data();
  writer.lanes = lanes;
  std::fill_n(writer.states, lanes, kRansLow);
  int32_t indices[kDitherBlock];
  std::fill_n(indices, kDitherBlock, index);
  EncodeDitherIndices(indices, PlainShape(kDitherBlock),
                      GetDitherModel(DitherDensity::kLaplace, kNeutralPhase), id, &writer);
  int32_t difference[kDitherBlock] = {};
  EncodeDitherIndices(difference, PlainShape(1),
                      GetDitherModel(DitherDensity::kLaplace, kNeutralPhase), 1, &writer);
  const auto log = static_cast<uint8_t>(std::countr_zero(lanes));
  std::vector<uint8_t> tile = BytesOf(log, uint8_t{1}, static_cast<uint8_t>(id));
  for (size_t s = lanes; s-- > 0;) {
    const auto state = BytesOf(writer.states[s]);
    tile.insert(tile.end(), state.begin(), state.end());
  }
  ReverseWords(words.data(), static_cast<size_t>(writer.words - words.data()) / 2);
  tile.insert(tile.end(), words.data(), writer.words);
  tile.insert(tile.end(), bytes.data(), writer.bytes);
  return tile;
}

std::vector<uint8_t> DitherFrame(float step, const std::vector<uint8_t>& tile) {
  DitherFormat format;
  format.step = step;
  format.dithered = kDitherBlock;
  const auto parameters = WriteDitherParameters(format);
  return Sealed(CodecId::kDither, kDitherBlock, {parameters.begin(), parameters.end()}, tile);
}

// The largest index that a frame can have, 2^26 - 1, which is 2^26 as a float.
constexpr int kLastClass = kDitherClasses - 1;
constexpr int32_t kLargest = (1 << 26) - 1;

TEST(HostileFrame, DitheredValuesBeyondTheLargestFloatAreRefused) {
  for (const size_t lanes : {1, 8, 32, 128}) {
    for (const float step : {0x1p102f, 0x1.8p102f, 0x1p127f}) {
      ExpectRefused(DitherFrame(step, DitherTile(kLastClass, kLargest, lanes)), kDitherBlock,
                    "infinite");
    }
    // As large as can be, and finite; and with a larger step, indices that are small.
    for (const auto& frame :
         {DitherFrame(0x1.fffffep101f, DitherTile(kLastClass, kLargest, lanes)),
          DitherFrame(0x1p126f, DitherTile(kDitherUnitClass, 1, lanes))}) {
      std::vector<float> values(kDitherBlock);
      Workspace work;
      const Status status = DecodeFrame(frame, work, values);
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return std::isfinite(v); }));
    }
  }
}

// The first symbol of the block wants a word. There is none, and all else is as it should be at
// the end of a tile, so that only a decoder that has noticed refuses the frame.
TEST(HostileFrame, DitherTilesWithoutTheirWordsAreRefused) {
  for (const size_t lanes : {1, 8, 32, 64, 128}) {
    const std::vector<uint8_t> whole = DitherTile(1, -1, lanes);
    // Up to the states, all of them but that of the difference as they are in the end.
    std::vector<uint8_t> tile(whole.begin(), whole.begin() + kDitherTileHeader);
    DitherWriter writer;
    std::vector<uint8_t> words(kMaxDitherBlockBytes), bytes(kMaxDitherBlockBytes);
    writer.words = words.data();
    writer.bytes = bytes.data();
    writer.lanes = lanes;
    std::fill_n(writer.states, lanes, kRansLow);
    int32_t difference[kDitherBlock] = {};
    EncodeDitherIndices(difference, PlainShape(1),
                        GetDitherModel(DitherDensity::kLaplace, kNeutralPhase), 1, &writer);
    ASSERT_EQ(writer.words, words.data()) << "the difference takes no word";
    for (size_t s = lanes; s-- > 0;) {
      const auto state = BytesOf(writer.states[s]);
      tile.insert(tile.end(), state.begin(), state.end());
    }
    ExpectRefused(DitherFrame(1, tile), kDitherBlock, "ends too early");
  }
}

}  // namespace
}  // namespace elastiquant
