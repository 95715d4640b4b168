#include "elastiquant/exchange/skip_notice.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace elastiquant {
namespace {

TEST(SkipNotice, RoundTrips) {
  const SkipNotice notice{3, 2, (uint64_t{1} << 40) + 17, SkipNotice::Cause::kInfinity};
  std::vector<uint8_t> frame(kSkipNoticeBytes);
  ASSERT_EQ(WriteSkipNotice(notice, frame), kSkipNoticeBytes);
  const auto read = ReadSkipNotice(frame);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_TRUE(read->has_value());
  EXPECT_EQ(**read, notice);
}

TEST(SkipNotice, EveryFlippedBitOfANoticeIsNoticed) {
  std::vector<uint8_t> frame(kSkipNoticeBytes);
  WriteSkipNotice({1, 1, 5, SkipNotice::Cause::kNan}, frame);
  for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    frame[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const auto read = ReadSkipNotice(frame);
    // With another codec number it is for the decoders to reject.
    EXPECT_TRUE(!read.ok() || !read->has_value()) << "bit " << bit;
    frame[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
}

TEST(SkipNotice, OrdinaryAndTruncatedFramesAreNone) {
  EXPECT_FALSE(ReadSkipNotice({}).value().has_value());
  const std::vector<uint8_t> zeros(100);
  EXPECT_FALSE(ReadSkipNotice(zeros).value().has_value());
}

TEST(SkipNotice, FindsTheFirstNonFiniteValue) {
  std::vector<float> v(1000, std::numeric_limits<float>::max());
  v[3] = std::numeric_limits<float>::denorm_min();
  EXPECT_FALSE(FindNonFinite(v, 0, 1, 2).has_value());
  EXPECT_FALSE(FindNonFinite({}, 0, 1, 2).has_value());
  v[999] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(FindNonFinite(v, 50, 1, 2), (SkipNotice{1, 2, 1049, SkipNotice::Cause::kNan}));
  v[7] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(FindNonFinite(v, 50, 1, 2), (SkipNotice{1, 2, 57, SkipNotice::Cause::kInfinity}));
}

TEST(SkipNotice, SaysWhoAndWhere) {
  EXPECT_EQ(Describe({3, 2, 17, SkipNotice::Cause::kNan}, "layer3.0.conv1.weight"),
            "worker 2: NaN in bucket 3 (layer3.0.conv1.weight) at 17");
  EXPECT_EQ(Describe({0, 1, 0, SkipNotice::Cause::kOutOfRange}, ""),
            "worker 1: values too large to encode in bucket 0");
}

}  // namespace
}  // namespace elastiquant
