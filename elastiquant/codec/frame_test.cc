#include "elastiquant/codec/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace elastiquant {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr uint8_t kParameters[] = {7, 8, 9};
constexpr uint8_t kPayload[] = {1, 2, 3, 4, 5};

std::vector<uint8_t> SmallFrame() {
  std::vector<uint8_t> bytes(kFrameHeaderBytes + 8);
  std::ranges::copy(kPayload, bytes.begin() + FramePayloadOffset(3));
  FrameView view{CodecId::kElastic, 0xA5, 0x01020304, StreamKey{0x1122334455667788}, {}, {}};
  view.parameters = kParameters;
  view.payload = kPayload;
  EXPECT_EQ(SealFrame(view, bytes), bytes.size());
  return bytes;
}

TEST(Frame, EveryByteIsWhereTheFormatSays) {
  EXPECT_THAT(SmallFrame(), ElementsAre('E', 'Q', 'F', '1', 1, 4, 0xA5, 3,               //
                                        0x04, 0x03, 0x02, 0x01, 0x51, 0xED, 0x77, 0x62,  //
                                        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  //
                                        5, 0, 0, 0, 0, 0, 0, 0,                          //
                                        7, 8, 9, 1, 2, 3, 4, 5));
}

TEST(Frame, IsTakenApartAgain) {
  const std::vector<uint8_t> bytes = SmallFrame();
  const auto view = ParseFrame(bytes);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_EQ(view->codec, CodecId::kElastic);
  EXPECT_EQ(view->flags, 0xA5);
  EXPECT_EQ(view->elements, 0x01020304u);
  EXPECT_EQ(view->key.value, 0x1122334455667788u);
  EXPECT_THAT(view->parameters, ElementsAreArray(kParameters));
  EXPECT_THAT(view->payload, ElementsAreArray(kPayload));
}

TEST(Frame, SealingTouchesNothingBehindTheFrame) {
  std::vector<uint8_t> bytes(kFrameHeaderBytes + 10, 0xEE);
  FrameView view;
  EXPECT_EQ(SealFrame(view, bytes), kFrameHeaderBytes);
  EXPECT_EQ(std::count(bytes.begin() + kFrameHeaderBytes, bytes.end(), 0xEE), 10);
}

std::string Refusal(std::span<const uint8_t> bytes) {
  const auto view = ParseFrame(bytes);
  return view.ok() ? "accepted" : view.status().message();
}

TEST(Frame, EachFailedCheckIsNamed) {
  std::vector<uint8_t> bytes = SmallFrame();
  EXPECT_THAT(Refusal({}), HasSubstr("header check failed"));
  EXPECT_THAT(Refusal(std::span(bytes).first(31)), HasSubstr("header check failed: 31 bytes"));
  EXPECT_THAT(Refusal(std::span(bytes).first(39)), HasSubstr("length check failed"));
  const auto with = [&](size_t at, uint8_t value) {
    std::vector<uint8_t> changed = bytes;
    changed[at] = value;
    return Refusal(changed);
  };
  EXPECT_THAT(with(0, 'e'), HasSubstr("magic check failed"));
  EXPECT_THAT(with(4, 2), HasSubstr("version check failed: the frame has version 2"));
  EXPECT_THAT(with(7, 255), HasSubstr("length check failed"));
  EXPECT_THAT(with(24, 6), HasSubstr("length check failed"));
  EXPECT_THAT(with(31, 0xFF), HasSubstr("length check failed"));
  EXPECT_THAT(with(8, 0), HasSubstr("checksum check failed"));
  EXPECT_THAT(with(12, 0), HasSubstr("checksum check failed"));
  EXPECT_THAT(with(39, 0), HasSubstr("checksum check failed"));
  bytes.push_back(0);
  EXPECT_THAT(Refusal(bytes), HasSubstr("length check failed"));
}

TEST(Frame, SizesAreCheckedBeforeEncoding) {
  EXPECT_TRUE(CheckEncodeSizes(10, 72, 72).ok());
  EXPECT_EQ(CheckEncodeSizes(10, 72, 71).code(), StatusCode::kBufferTooSmall);
  EXPECT_THAT(CheckEncodeSizes(10, 72, 71).message(), HasSubstr("72 bytes"));
  EXPECT_EQ(CheckEncodeSizes(kMaxFrameElements + 1, 0, 0).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace elastiquant
