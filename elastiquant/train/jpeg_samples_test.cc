#include "elastiquant/train/jpeg_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace elastiquant {
namespace {

// Smooth images, each with a phase of its own.
std::vector<uint8_t> SmoothImages(ImageShape shape, size_t count) {
  std::vector<uint8_t> pixels;
  for (size_t i = 0; i < count; ++i) {
    for (size_t y = 0; y < shape.side; ++y) {
      for (size_t x = 0; x < shape.side; ++x) {
        for (size_t c = 0; c < shape.channels; ++c) {
          const auto at = static_cast<double>(x + 2 * y + 7 * i + 3 * c);
          pixels.push_back(static_cast<uint8_t>(128 + 100 * std::sin(at / 9)));
        }
      }
    }
  }
  return pixels;
}

std::vector<uint8_t> ThereAndBack(const SampleCodec& codec, std::span<const uint8_t> images) {
  const std::vector<uint64_t> ids(images.size() / codec.shape().bytes());
  const auto coded = codec.Encode(ids, images);
  EXPECT_TRUE(coded.ok()) << coded.status().ToString();
  EXPECT_LE(coded->size(), codec.MaxBytes(ids.size()));
  std::vector<uint8_t> decoded(images.size());
  const Status status = codec.Decode(ids, *coded, decoded);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return decoded;
}

double RootMeanSquare(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(double{1} * a[i] - b[i], 2);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

TEST(JpegSamplesTest, ImagesOfAllShapesComeBack) {
  for (const size_t channels : {size_t{1}, size_t{3}}) {
    for (const size_t side : {size_t{1}, size_t{8}, size_t{16}, size_t{28}, size_t{33}}) {
      const ImageShape shape{side, channels};
      const std::vector<uint8_t> images = SmoothImages(shape, 3);
      const auto codec = MakeJpegCodec(95, shape);
      EXPECT_LT(RootMeanSquare(ThereAndBack(*codec, images), images), 8)
          << side << " " << channels;
    }
  }
}

// Or resuming, which sends an image among others, would change it.
TEST(JpegSamplesTest, WhatBecomesOfAnImageDoesNotDependOnItsNeighbours) {
  for (const size_t side : {size_t{16}, size_t{28}, size_t{32}}) {
    const ImageShape shape{side, 3};
    const std::vector<uint8_t> images = SmoothImages(shape, 5);
    const auto codec = MakeJpegCodec(40, shape);
    const std::vector<uint8_t> together = ThereAndBack(*codec, images);
    for (size_t i = 0; i < 5; ++i) {
      const size_t size = shape.bytes();
      const auto alone = ThereAndBack(*codec, std::span(images).subspan(i * size, size));
      EXPECT_THAT(alone,
                  testing::ElementsAreArray(std::span(together).subspan(i * size, size)));
    }
  }
}

TEST(JpegSamplesTest, MoreImagesThanAPictureHolds) {
  const ImageShape shape{512, 1};  // 64 in a picture
  const std::vector<uint8_t> images = SmoothImages(shape, 65);
  EXPECT_LT(RootMeanSquare(ThereAndBack(*MakeJpegCodec(90, shape), images), images), 8);
}

TEST(JpegSamplesTest, FewerBytesAtLowerQuality) {
  const ImageShape shape{32, 3};
  const std::vector<uint8_t> images = SmoothImages(shape, 32);
  const std::vector<uint64_t> ids(32);
  size_t before = images.size();
  double error = 0;
  for (const int quality : {90, 50, 10}) {
    const auto codec = MakeJpegCodec(quality, shape);
    const size_t size = codec->Encode(ids, images).value().size();
    EXPECT_LT(size, before);
    const double now = RootMeanSquare(ThereAndBack(*codec, images), images);
    EXPECT_GT(now, error);
    before = size;
    error = now;
  }
}

TEST(JpegSamplesTest, DamagedPicturesAreRefused) {
  const ImageShape shape{16, 3};
  const auto codec = MakeJpegCodec(50, shape);
  const std::vector<uint64_t> ids(2);
  std::vector<uint8_t> coded = codec->Encode(ids, SmoothImages(shape, 2)).value();
  std::vector<uint8_t> decoded(2 * shape.bytes());
  EXPECT_FALSE(codec->Decode(ids, {}, decoded).ok());
  EXPECT_FALSE(codec->Decode(ids, std::span(coded).first(40), decoded).ok());
  EXPECT_FALSE(
      codec->Decode(std::vector<uint64_t>(1), coded, std::span(decoded).first(768)).ok());
  coded.push_back(0);
  EXPECT_FALSE(codec->Decode(ids, coded, decoded).ok());
}

// Behind the marker of a frame are its length, its precision, and two bytes for each side.
TEST(JpegSamplesTest, APictureThatClaimsToBeHugeIsRefusedBeforeThereIsRoomForIt) {
  const ImageShape shape{16, 3};
  const auto codec = MakeJpegCodec(50, shape);
  const std::vector<uint64_t> ids(1);
  std::vector<uint8_t> coded = codec->Encode(ids, SmoothImages(shape, 1)).value();
  const uint8_t marker[] = {0xFF, 0xC0};
  const auto frame = std::ranges::search(coded, marker).begin();
  ASSERT_NE(frame, coded.end());
  std::fill_n(frame + 5, 4, uint8_t{0xFA});
  std::vector<uint8_t> decoded(shape.bytes());
  const Status status = codec->Decode(ids, coded, decoded);
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(),
              testing::HasSubstr("a picture of samples has 64250x64250 pixels, not 16x16"));
}

TEST(JpegSamplesTest, SpecsAreChecked) {
  const ImageShape shape{16, 3};
  EXPECT_EQ(MakeSampleCodec("jpeg", shape, 0).value()->spec(), "jpeg:quality=50");
  EXPECT_EQ(MakeSampleCodec("jpeg:quality=7", shape, 0).value()->spec(), "jpeg:quality=7");
  EXPECT_EQ(MakeSampleCodec("pixels:bits=2", shape, 0).value()->spec(),
            "pixels:bits=2,rounding=dither");
  for (const char* bad : {"jpeg:quality=0", "jpeg:quality=101", "jpeg:bits=2", "png", ""}) {
    EXPECT_FALSE(MakeSampleCodec(bad, shape, 0).ok()) << bad;
  }
}

}  // namespace
}  // namespace elastiquant
