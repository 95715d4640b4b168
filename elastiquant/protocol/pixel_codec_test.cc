#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "elastiquant/protocol/sample_codec.h"

namespace elastiquant {
namespace {

std::vector<uint8_t> ThereAndBack(const SampleCodec& codec, std::span<const uint64_t> ids,
                                  std::span<const uint8_t> images) {
  const auto coded = codec.Encode(ids, images);
  EXPECT_TRUE(coded.ok()) << coded.status().ToString();
  EXPECT_EQ(coded->size(), codec.MaxBytes(ids.size()));
  std::vector<uint8_t> decoded(images.size());
  EXPECT_TRUE(codec.Decode(ids, *coded, decoded).ok());
  return decoded;
}

std::vector<uint8_t> AllValues(size_t count) {
  std::vector<uint8_t> values(count);
  std::iota(values.begin(), values.end(), uint8_t{0});
  return values;
}

TEST(PixelCodecTest, ErrorsAreWithinHalfAStep) {
  const ImageShape shape{.side = 16, .channels = 3};
  const std::vector<uint64_t> ids = {0, 5, 1ULL << 40};
  const std::vector<uint8_t> images = AllValues(ids.size() * shape.bytes());
  for (int bits = 1; bits <= 8; ++bits) {
    for (const bool dithered : {false, true}) {
      const auto codec = MakePixelCodec({bits, dithered}, shape, 3);
      const std::vector<uint8_t> decoded = ThereAndBack(*codec, ids, images);
      const double most = 255.0 / ((1 << bits) - 1) / 2 + .5;
      for (size_t i = 0; i < images.size(); ++i) {
        ASSERT_LE(std::abs(decoded[i] - images[i]), most + 1e-3) << bits << " " << i;
      }
      if (bits == 8) {
        EXPECT_EQ(decoded, images);
      }
    }
  }
}

TEST(PixelCodecTest, DitherMakesTheErrorIndependentOfTheImage) {
  const ImageShape shape{.side = 64, .channels = 1};
  const auto codec = MakePixelCodec({.bits = 2}, shape, 3);
  const std::vector<uint64_t> ids = {0, 1, 2, 3};
  for (const int value : {50, 85, 100, 128, 200}) {
    const std::vector<uint8_t> images(ids.size() * shape.bytes(), static_cast<uint8_t>(value));
    const std::vector<uint8_t> decoded = ThereAndBack(*codec, ids, images);
    double sum = 0, squares = 0;
    for (const uint8_t d : decoded) {
      const double error = static_cast<double>(d) - value;
      sum += error;
      squares += error * error;
    }
    const auto n = static_cast<double>(decoded.size());
    const double variance = 85.0 * 85.0 / 12;
    EXPECT_NEAR(sum / n, 0, 4 * std::sqrt(variance / n)) << value;
    // A uniform error has a kurtosis of 9 / 5.
    EXPECT_NEAR(squares / n, variance, 4 * variance * std::sqrt(.8 / n)) << value;
  }
}

TEST(PixelCodecTest, AnImageThatIsSentAgainIsTheSame) {
  const ImageShape shape{.side = 5, .channels = 3};
  const auto codec = MakePixelCodec({.bits = 3}, shape, 3);
  const std::vector<uint8_t> images = AllValues(2 * shape.bytes());
  const auto both = ThereAndBack(*codec, std::vector<uint64_t>{8, 9}, images);
  const auto second =
      ThereAndBack(*codec, std::vector<uint64_t>{9}, std::span(images).last(shape.bytes()));
  EXPECT_THAT(second, testing::ElementsAreArray(std::span(both).last(shape.bytes())));
  const auto other =
      ThereAndBack(*codec, std::vector<uint64_t>{8}, std::span(images).last(shape.bytes()));
  EXPECT_NE(second, other);
}

TEST(PixelCodecTest, WrongBytesAreRefused) {
  const ImageShape shape{.side = 3, .channels = 1};
  const auto codec = MakePixelCodec({.bits = 3}, shape, 3);
  const std::vector<uint64_t> ids = {0};
  std::vector<uint8_t> coded = codec->Encode(ids, AllValues(9)).value();
  std::vector<uint8_t> decoded(9);
  EXPECT_FALSE(codec->Decode(ids, std::span(coded).first(3), decoded).ok());
  coded.back() |= 1;  // 27 bits are used of 32
  EXPECT_FALSE(codec->Decode(ids, coded, decoded).ok());
}

TEST(PixelCodecTest, SpecsAreChecked) {
  const ImageShape shape{.side = 3, .channels = 1};
  const auto parsed = ParsePixelCodec("pixels:bits=2,rounding=nearest").value();
  EXPECT_EQ(MakePixelCodec(parsed, shape, 0)->spec(), "pixels:bits=2,rounding=nearest");
  EXPECT_EQ(MakePixelCodec(ParsePixelCodec("pixels").value(), shape, 0)->spec(),
            "pixels:bits=4,rounding=dither");
  for (const char* bad : {"pixels:bits=0", "pixels:bits=9", "pixels:rounding=up", "jpeg",
                          "pixels:levels=3", "pixels|ef"}) {
    EXPECT_FALSE(ParsePixelCodec(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace elastiquant
