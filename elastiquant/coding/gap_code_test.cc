#include "elastiquant/coding/gap_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

constexpr GapMark kMarks[] = {GapMark::kNone, GapMark::kPlus, GapMark::kMinus};

// Positions below n, each with probability 2^-32 limit.
std::vector<uint32_t> RandomPositions(uint32_t n, uint32_t limit, uint32_t seed = 1) {
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < n; ++i) {
    if (RandomBits({seed, 77}, i) < limit) positions.push_back(i);
  }
  return positions;
}

std::vector<GapMark> Marks(size_t size) {
  std::vector<GapMark> marks(size);
  for (size_t i = 0; i < size; ++i) {
    marks[i] = kMarks[RandomBits({5, 6}, static_cast<uint32_t>(i)) % 3];
  }
  return marks;
}

struct CodedGaps {
  std::vector<uint8_t> table, stream;
};
CodedGaps Encode(const GapRun& run) {
  GapCounts counts;
  counts.Add(run);
  const GapCode code(counts, !run.marks.empty());
  CodedGaps coded;
  coded.table.resize(GapCode::kMaxTableBytes);
  coded.table.resize(code.Write(coded.table.data()));
  coded.stream.resize(code.Bits(counts) / 8 + 9);
  BitWriter writer(coded.stream);
  code.Encode(run, writer);
  size_t size = 0;
  EXPECT_TRUE(writer.Finish(&size));
  EXPECT_EQ(size, (code.Bits(counts) + 7) / 8);
  EXPECT_LE(code.Bits(counts),
            GapCode::MaxBits(run.positions.size(), run.positions.back() - run.next + 1));
  coded.stream.resize(size);
  return coded;
}

// Whether all comes back.
void ExpectRoundTrip(const GapRun& run) {
  const CodedGaps coded = Encode(run);
  const bool marked = !run.marks.empty();
  size_t table = 0;
  const auto code = GapCode::Read(coded.table, marked, &table);
  ASSERT_TRUE(code.ok()) << code.status().ToString();
  EXPECT_EQ(table, coded.table.size());
  std::vector<uint32_t> positions(run.positions.size());
  std::vector<GapMark> marks(run.marks.size());
  BitReader reader(coded.stream);
  ASSERT_TRUE(
      GapDecoder(*code).Decode(reader, run.next, run.positions.back(), positions, marks));
  EXPECT_TRUE(std::ranges::equal(positions, run.positions));
  EXPECT_TRUE(std::ranges::equal(marks, run.marks));
  EXPECT_TRUE(reader.AtFinish());
}

TEST(GapCode, PositionsComeBack) {
  constexpr uint32_t kLast = 0xFFFFFFFE;
  const std::vector<std::vector<uint32_t>> cases{
      {0},
      {1},
      {kLast},
      {0, kLast},
      {0, 1, 2, 3, 4, 5},
      {kLast - 1, kLast},
      {0, 1, 3, 6, 10, 15, 21, 28, 1000, 1000000, 1000000000, 4000000000},
      RandomPositions(100000, 1u << 22),
      RandomPositions(5000, ~0u),
  };
  for (const auto& positions : cases) {
    const std::vector<GapMark> marks = Marks(positions.size());
    for (const uint32_t next : {0u, positions.front()}) {
      ExpectRoundTrip({next, positions, {}});
      ExpectRoundTrip({next, positions, marks});
    }
  }
}

TEST(GapCode, EveryGapWidthHasItsSymbol) {
  std::vector<uint32_t> positions;
  uint64_t at = 0;
  for (int w = 0; w < 31; ++w) {
    for (const uint64_t gap :
         {uint64_t{1} << w, (uint64_t{1} << w) + (uint64_t{1} << w >> 1)}) {
      if (at + gap < 0xFFFFFFFF) positions.push_back(static_cast<uint32_t>(at += gap));
    }
  }
  ExpectRoundTrip({0, positions, {}});
  GapCounts counts;
  const std::vector<uint32_t> some{0, 2, 5, 9, 15};  // gaps 1, 2, 3, 4, 6
  counts.Add(GapRun{0, some, {}});
  for (size_t s = 0; s < 5; ++s) EXPECT_EQ(counts.symbols[s], 1u) << s;
  EXPECT_EQ(counts.plain_bits, 2u);  // one each for 4 and 6
}

TEST(GapCode, RandomPositionsCostLittleMoreThanTheirEntropy) {
  for (const double p : {0.5, 0.1, 0.01, 0.001}) {
    const auto limit = static_cast<uint32_t>(p * 0x1p32);
    const std::vector<uint32_t> positions = RandomPositions(1 << 20, limit);
    const CodedGaps coded = Encode({0, positions, {}});
    const double bits = 8.0 * static_cast<double>(coded.table.size() + coded.stream.size()) /
                        static_cast<double>(positions.size());
    const double entropy = (-p * std::log2(p) - (1 - p) * std::log2(1 - p)) / p;
    EXPECT_LT(bits, entropy + 0.25) << p;
    if (p == 0.001) {
      EXPECT_LT(bits, 11.75);
    }
  }
}

TEST(GapCode, ClusteredPositionsCostFarLess) {
  std::vector<uint32_t> positions;  // dense runs of 64, a thousandth of all
  for (uint32_t i = 0; i < 200; ++i) {
    for (uint32_t j = 0; j < 64; ++j) positions.push_back(64000 * i + j);
  }
  const CodedGaps coded = Encode({0, positions, {}});
  EXPECT_LT(coded.table.size() + coded.stream.size(), positions.size() / 8 + 600);
}

TEST(GapCode, WhetherAPositionIsMarkedCostsItsEntropy) {
  const std::vector<uint32_t> positions = RandomPositions(1 << 20, 1u << 26);
  std::vector<GapMark> marks(positions.size(), GapMark::kPlus);
  for (size_t i = 0; i < marks.size(); i += 50) marks[i] = GapMark::kNone;
  const size_t without = Encode({0, positions, {}}).stream.size();
  const size_t with = Encode({0, positions, marks}).stream.size();
  const double bits =
      8.0 * static_cast<double>(with - without) / static_cast<double>(positions.size());
  EXPECT_LT(bits, 0.98 + 0.141 + 0.03);  // a bit each for the 98 %, and the entropy of 2 %
}

TEST(GapCode, PositionsOutOfRangeAreRefused) {
  const std::vector<uint32_t> positions = RandomPositions(5000, 1u << 28);
  const CodedGaps coded = Encode({0, positions, {}});
  size_t table = 0;
  const auto code = GapCode::Read(coded.table, false, &table);
  ASSERT_TRUE(code.ok());
  const GapDecoder decoder(*code);
  std::vector<uint32_t> out(positions.size());
  for (const uint32_t last : {positions.back() - 1, positions.back() + 1, 0u, ~0u}) {
    BitReader reader(coded.stream);
    EXPECT_FALSE(decoder.Decode(reader, 0, last, out, {})) << last;
  }
  BitReader shifted(coded.stream);
  EXPECT_FALSE(decoder.Decode(shifted, 1, positions.back(), out, {}));
}

// Any bytes decode to something or are refused; a sanitizer watches.
TEST(GapCode, HostileBytesStayWithinBounds) {
  for (uint32_t round = 0; round < 3000; ++round) {
    std::vector<uint8_t> bytes(2 + round % 90);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(RandomBits({round, 9}, static_cast<uint32_t>(i)));
    }
    if (round % 2 != 0) {  // a code that is one
      const std::vector<uint8_t> good{0, 4, 0x22, 0x22};
      std::copy_n(good.begin(), std::min(good.size(), bytes.size()), bytes.begin());
    }
    const bool marked = round % 3 == 0;
    size_t table = 0;
    const auto code = GapCode::Read(bytes, marked, &table);
    if (!code.ok()) continue;
    std::vector<uint32_t> positions(50);
    std::vector<GapMark> marks(marked ? 50 : 0);
    BitReader reader{std::span<const uint8_t>(bytes).subspan(table)};
    if (!GapDecoder(*code).Decode(reader, 10, 500, positions, marks)) continue;
    EXPECT_GE(positions.front(), 10u);
    EXPECT_EQ(positions.back(), 500u);
    for (size_t i = 1; i < positions.size(); ++i) EXPECT_LT(positions[i - 1], positions[i]);
  }
}

}  // namespace
}  // namespace elastiquant
