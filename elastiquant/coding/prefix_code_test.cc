#include "elastiquant/coding/prefix_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

uint64_t CostOf(const PrefixCode& code, const std::vector<uint64_t>& counts) {
  uint64_t cost = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    cost += counts[s] * static_cast<uint64_t>(code.length(static_cast<int>(s)));
  }
  return cost;
}

// Huffman's own algorithm, without a limit: the cost is the sum of all merged weights.
uint64_t HuffmanCost(const std::vector<uint64_t>& counts) {
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap;
  for (const uint64_t count : counts) {
    if (count != 0) heap.push(count);
  }
  uint64_t cost = 0;
  while (heap.size() > 1) {
    uint64_t sum = heap.top();
    heap.pop();
    sum += heap.top();
    heap.pop();
    cost += sum;
    heap.push(sum);
  }
  return cost;
}

// The sum of 2^-length, in parts of 2^-12.
uint32_t Space(const PrefixCode& code) {
  uint32_t space = 0;
  for (int s = 0; s < kMaxPrefixSymbols; ++s) {
    if (code.length(s) != 0) space += 1u << (kMaxPrefixBits - code.length(s));
  }
  return space;
}

std::vector<uint64_t> RandomCounts(size_t size, uint64_t seed) {
  std::vector<uint64_t> counts(size);
  for (size_t s = 0; s < size; ++s) counts[s] = 100 + Mix64(seed * 1000 + s) % 500;
  return counts;
}

TEST(PrefixCode, IsHuffmansWhereTheLimitDoesNotBind) {
  for (size_t size : {2u, 3u, 17u, 63u, 126u, 128u}) {
    const std::vector<uint64_t> counts = RandomCounts(size, size);
    const PrefixCode code = PrefixCode::Optimal(counts);
    EXPECT_EQ(CostOf(code, counts), HuffmanCost(counts)) << size;
    EXPECT_EQ(Space(code), 1u << kMaxPrefixBits);
  }
}

// The best lengths within a limit, by dynamic programming over the space that is left: the
// least cost of giving codes to the symbols from the most to the least frequent.
uint64_t LimitedCost(std::vector<uint64_t> counts) {
  std::ranges::sort(counts, std::greater<>());
  constexpr uint64_t kNever = ~uint64_t{0} / 2;
  constexpr size_t kSpace = size_t{1} << kMaxPrefixBits;
  std::vector<uint64_t> best(kSpace + 1, kNever);
  best[kSpace] = 0;
  for (const uint64_t count : counts) {
    std::vector<uint64_t> next(kSpace + 1, kNever);
    for (size_t left = 0; left <= kSpace; ++left) {
      if (best[left] == kNever) continue;
      for (int length = 1; length <= kMaxPrefixBits; ++length) {
        const size_t takes = size_t{1} << (kMaxPrefixBits - length);
        if (takes > left) continue;
        const uint64_t cost = best[left] + count * static_cast<uint64_t>(length);
        next[left - takes] = std::min(next[left - takes], cost);
      }
    }
    best = next;
  }
  return *std::ranges::min_element(best);
}

TEST(PrefixCode, IsOptimalWithinTheLimit) {
  std::vector<uint64_t> fibonacci{1, 1}, octaves;
  for (size_t i = 2; i < 40; ++i) fibonacci.push_back(fibonacci[i - 1] + fibonacci[i - 2]);
  for (int i = 0; i < 32; ++i) octaves.push_back(uint64_t{1} << i);
  for (const auto& counts : {fibonacci, octaves}) {
    EXPECT_GT(LimitedCost(counts), HuffmanCost(counts));  // the limit does bind
    const PrefixCode code = PrefixCode::Optimal(counts);
    EXPECT_EQ(CostOf(code, counts), LimitedCost(counts));
    EXPECT_EQ(Space(code), 1u << kMaxPrefixBits);
  }
}

TEST(PrefixCode, IsCanonical) {
  // Counts 1, 1, 2, 0, 4: lengths 3, 3, 2, none, 1.
  const PrefixCode code = PrefixCode::Optimal(std::vector<uint64_t>{1, 1, 2, 0, 4});
  EXPECT_EQ(code.length(0), 3);
  EXPECT_EQ(code.length(1), 3);
  EXPECT_EQ(code.length(2), 2);
  EXPECT_EQ(code.length(3), 0);
  EXPECT_EQ(code.length(4), 1);
  EXPECT_EQ(code.code(4), 0b0u);
  EXPECT_EQ(code.code(2), 0b10u);
  EXPECT_EQ(code.code(0), 0b110u);
  EXPECT_EQ(code.code(1), 0b111u);
  uint8_t table[PrefixCode::kMaxTableBytes];
  EXPECT_EQ(code.Write(table), 5u);
  EXPECT_EQ((std::vector<uint8_t>(table, table + 5)),
            (std::vector<uint8_t>{0, 5, 0x33, 0x02, 0x01}));
}

TEST(PrefixCode, WhatIsWrittenIsRead) {
  for (size_t size : {1u, 2u, 5u, 63u, 128u}) {
    std::vector<uint64_t> counts = RandomCounts(size, 7);
    counts[size / 2] = 1;
    const PrefixCode code = PrefixCode::Optimal(counts);
    std::vector<uint8_t> bytes(PrefixCode::kMaxTableBytes + 8);
    const size_t table = code.Write(bytes.data());
    ASSERT_LE(table, PrefixCode::kMaxTableBytes);
    size_t read = 0;
    const auto again = PrefixCode::Read(std::span(bytes).first(table), 128, &read);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(read, table);
    const PrefixDecoder decoder(*again);
    for (int s = 0; s < static_cast<int>(size); ++s) {
      EXPECT_EQ(again->length(s), code.length(s));
      if (counts[static_cast<size_t>(s)] == 0) continue;
      std::vector<uint8_t> stream(16);
      BitWriter writer(stream);
      if (code.length(s) > 0) writer.Add(code.code(s), code.length(s));
      size_t used = 0;
      ASSERT_TRUE(writer.Finish(&used));
      BitReader reader{std::span<const uint8_t>(stream).first(used)};
      EXPECT_EQ(decoder.Next(reader), s);
      EXPECT_EQ(reader.position(), static_cast<size_t>(code.length(s)));
    }
  }
}

TEST(PrefixCode, TablesThatAreNoCodesAreRefused) {
  const std::vector<std::vector<uint8_t>> bad{
      {},
      {3},
      {0, 0},              // no symbol
      {60, 10},            // beyond the last symbol
      {0, 2, 0x11, 0x11},  // fine, but see below: it is the first two bytes that count
      {0, 3, 0x11, 0x01},  // more than complete
      {0, 2, 0x21},        // less than complete
      {0, 2, 0x1D},        // 13 bits
      {0, 3, 0x21, 0x12},  // a filling bit
      {0, 3, 0x21},        // cut short
      {0, 2, 0x01},        // one symbol, which would be written as one
  };
  size_t bytes = 0;
  for (size_t i = 0; i < bad.size(); ++i) {
    const auto code = PrefixCode::Read(bad[i], 63, &bytes);
    EXPECT_EQ(code.ok(), i == 4) << i;
    if (!code.ok()) {
      EXPECT_EQ(code.status().code(), StatusCode::kCorruptData);
    }
  }
}

}  // namespace
}  // namespace elastiquant
