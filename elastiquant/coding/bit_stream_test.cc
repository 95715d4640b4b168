#include "elastiquant/coding/bit_stream.h"

#include <gtest/gtest.h>

#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

TEST(BitStreamTest, FirstBitIsTheHighest) {
  std::vector<uint8_t> out(16);
  BitWriter writer(out);
  writer.Add(1, 1);
  writer.Add(0b010, 3);
  writer.Flush();
  writer.Add(0b11111, 5);
  size_t size = 0;
  ASSERT_TRUE(writer.Finish(&size));
  ASSERT_EQ(size, 2u);
  EXPECT_EQ(out[0], 0b10101111);
  EXPECT_EQ(out[1], 0b10000000);
}

TEST(BitStreamTest, WhatIsWrittenIsRead) {
  const LaneKeys keys = MakeLaneKeys(DeriveKey(1, 2, 3, 4));
  for (uint32_t items : {0u, 1u, 2u, 3u, 10u, 999u}) {
    std::vector<uint64_t> values(items);
    std::vector<int> counts(items);
    std::vector<uint8_t> out(items * 8 + 8);
    BitWriter writer(out);
    for (uint32_t i = 0; i < items; ++i) {
      counts[i] = static_cast<int>(RandomBits(keys, 3 * i) % BitWriter::kBitsPerFlush) + 1;
      values[i] = (uint64_t{RandomBits(keys, 3 * i + 1)} << 32 | RandomBits(keys, 3 * i + 2)) >>
                  (64 - counts[i]);
      writer.Add(values[i], counts[i]);
      writer.Flush();
    }
    size_t size = 0;
    ASSERT_TRUE(writer.Finish(&size));
    BitReader reader({out.data(), size});
    for (uint32_t i = 0; i < items; ++i) {
      reader.Reload();
      ASSERT_EQ(reader.Peek(counts[i]), values[i]);
      reader.Skip(counts[i]);
    }
    EXPECT_FALSE(reader.Overrun());
    EXPECT_TRUE(reader.AtFinish());
  }
}

TEST(BitStreamTest, WriterStopsAtTheEnd) {
  std::vector<uint8_t> out(9, 0xEE);
  BitWriter writer({out.data(), 8});
  for (int i = 0; i < 10; ++i) {
    writer.Add(0, 40);
    writer.Flush();
  }
  size_t size = 0;
  EXPECT_FALSE(writer.Finish(&size));
  EXPECT_EQ(out[8], 0xEE);
}

TEST(BitStreamTest, ReaderGivesZerosAfterTheEndAndTells) {
  const std::vector<uint8_t> in = {0xFF};
  BitReader reader(in);
  EXPECT_EQ(reader.Peek(10), 0b1111111100u);
  reader.Skip(8);
  EXPECT_FALSE(reader.Overrun());
  EXPECT_TRUE(reader.AtFinish());
  reader.Skip(1);
  EXPECT_TRUE(reader.Overrun());
  EXPECT_FALSE(reader.AtFinish());
  for (int i = 0; i < 100; ++i) {
    reader.Skip(57);
    reader.Reload();
    EXPECT_EQ(reader.Peek(57), 0u);
  }
}

TEST(BitStreamTest, FinishWantsZerosAndLessThanAByte) {
  const std::vector<uint8_t> in = {0b00000100, 0x00};
  BitReader reader(in);
  EXPECT_FALSE(reader.AtFinish());
  EXPECT_FALSE(BitReader({in.data(), 1}).AtFinish());
  BitReader front({in.data(), 1});
  front.Skip(5);
  EXPECT_FALSE(front.AtFinish());
  front.Skip(1);
  EXPECT_TRUE(front.AtFinish());
  EXPECT_TRUE(BitReader({}).AtFinish());
}

}  // namespace
}  // namespace elastiquant
