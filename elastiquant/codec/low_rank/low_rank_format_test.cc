#include "elastiquant/codec/low_rank/low_rank_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "elastiquant/codec/frame_testing.h"

namespace elastiquant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MessageShape, PlacesTensorsOneBehindTheOther) {
  const auto shape = MessageShape::Of(std::vector<TensorShape>{{2, 3}, {0, 5}, {1, 4}, {7, 0}});
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->elements(), 10u);
  ASSERT_EQ(shape->tensors().size(), 2u);
  EXPECT_EQ(shape->tensors()[1].begin, 6u);
  EXPECT_EQ(shape->tensors()[1].size, 4u);
  const size_t large = size_t{1} << 31;
  EXPECT_FALSE(MessageShape::Of(std::vector<TensorShape>{{large, large}}).ok());
  EXPECT_FALSE(MessageShape::Of(std::vector<TensorShape>{{1, large}, {large, 1}}).ok());
}

TEST(MessageShape, NearSquareLacksLessThanARow) {
  for (size_t n = 1; n < 3000; ++n) {
    const auto [shape, begin, size] = NearSquare(n, n);
    ASSERT_EQ(size, n);
    ASSERT_GE(shape.rows * shape.cols, n);
    ASSERT_LT(shape.rows * shape.cols - n, shape.cols);
    ASSERT_LE(shape.rows, shape.cols);
    ASSERT_LE(shape.cols, shape.rows + 1);
  }
  EXPECT_EQ(NearSquare(kMaxFrameElements, kMaxFrameElements).shape.cols, 65536u);
  EXPECT_EQ(NearSquare(1000, 16).shape.rows, 63u);
  EXPECT_EQ(NearSquare(1000, 16).shape.cols, 16u);
}

// A 2 x 3 matrix of rank 1, a row of 2, and a matrix of rank 1 with 5 of 6 values.
struct Example {
  std::vector<uint8_t> Frame(FactorFormat format) {
    std::vector<uint8_t> frame(1000);
    LowRankWriter writer(format, 3, frame);
    writer.BeginFactors({{2, 3}, 0, 6}, 1);
    writer.AddFactor(p);
    writer.AddFactor(q);
    EXPECT_TRUE(writer.AddDense({{1, 2}, 6, 2}, std::vector<float>{7, -8}).ok());
    writer.BeginFactors({{2, 3}, 8, 5}, 1);
    writer.AddFactor(p);
    writer.AddFactor(q);
    frame.resize(writer.Seal(13, {5}));
    return frame;
  }
  std::vector<float> p{0.5f, -1}, q{2, 4, 1.001f};
};

TEST(LowRankFormat, FactorsRowsAndCutMatricesDecode) {
  Example example;
  Workspace work;
  std::vector<float> out(13);
  ASSERT_TRUE(DecodeFrame(example.Frame(FactorFormat::kFp32), work, out).ok());
  EXPECT_THAT(out, ElementsAre(1, 2, 0.5005f, -2, -4, -1.001f, 7, -8, 1, 2, 0.5005f, -2, -4));
  ASSERT_TRUE(DecodeFrame(example.Frame(FactorFormat::kBf16), work, out).ok());
  EXPECT_EQ(example.q[2], 1) << "the encoder gets what a decoder does";
  EXPECT_THAT(out, ElementsAre(1, 2, 0.5f, -2, -4, -1, 7, -8, 1, 2, 0.5f, -2, -4));
}

class LowRankDamage : public ::testing::Test {
 protected:
  // The message that a frame with this number at this place is refused with.
  std::string Said(size_t offset, uint32_t value) {
    std::vector<uint8_t> bad = frame_;
    std::memcpy(bad.data() + offset, &value, sizeof(value));
    FixFrameChecksum(bad);
    std::vector<float> out(13);
    const Status status = DecodeFrame(bad, work_, out);
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << offset << " " << value;
    return status.message();
  }
  static constexpr size_t kRecords = LowRankNumbersOffset(0);

  Example example_;
  std::vector<uint8_t> frame_ = example_.Frame(FactorFormat::kFp32);
  Workspace work_;
};

TEST_F(LowRankDamage, ParametersAreChecked) {
  EXPECT_THAT(Said(32, 2), HasSubstr("format"));
  EXPECT_THAT(Said(32, 1u << 8), HasSubstr("reserved"));
  EXPECT_THAT(Said(36, 0), HasSubstr("fewer values"));
  EXPECT_THAT(Said(36, 2), HasSubstr("fewer values"));
  EXPECT_THAT(Said(36, 0xFFFFFFFFu), HasSubstr("too short"));
}

TEST_F(LowRankDamage, RecordsAreChecked) {
  for (const size_t record : {0, 12, 24}) {
    for (const size_t field : {0, 4}) {
      EXPECT_THAT(Said(kRecords + record + field, 0), HasSubstr("no values"));
      EXPECT_THAT(Said(kRecords + record + field, 0xFFFFFFFFu), HasSubstr("more values"));
    }
  }
  EXPECT_THAT(Said(kRecords + 0, 3), HasSubstr("more values"));
  EXPECT_THAT(Said(kRecords + 8, 3), HasSubstr("rank exceeds"));
  EXPECT_THAT(Said(kRecords + 8, 0), HasSubstr("bytes follow"));
  EXPECT_THAT(Said(kRecords + 24, 1), HasSubstr("fewer values"));
  EXPECT_THAT(Said(kRecords + 24, 3), HasSubstr("more values"));  // a row more than there is
  EXPECT_THAT(Said(kRecords + 32, 2), HasSubstr("ends within"));
  EXPECT_THAT(Said(kRecords + 32, kDenseRank), HasSubstr("more values"));
}

TEST_F(LowRankDamage, NumbersMustBeFiniteAndSoTheirProducts) {
  const size_t numbers = LowRankNumbersOffset(3);
  for (const uint32_t bad : {0x7F800000u, 0xFF800000u, 0x7FC00000u}) {
    for (size_t i = 0; i < 12; ++i) EXPECT_THAT(Said(numbers + 4 * i, bad), HasSubstr("NaN"));
  }
  EXPECT_THAT(Said(numbers, 0x7F7FFFFFu), HasSubstr("infinite"));  // times 2 is beyond fp32
}

}  // namespace
}  // namespace elastiquant
