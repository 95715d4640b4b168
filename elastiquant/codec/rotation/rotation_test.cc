#include "elastiquant/codec/rotation/rotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

double SquaredNorm(std::span<const float> values) {
  double sum = 0;
  for (float v : values) sum += static_cast<double>(v) * v;
  return sum;
}

TEST(Rotation, KeepsNormsAndIsInvertedByItsTranspose) {
  Workspace work(2);
  for (size_t n : {0u, 1u, 3u, 4u, 63u, 64u, 100u, 1000u, 5000u, 70001u}) {
    for (int rounds : {1, 2}) {
      const std::vector<float> values = Gaussian(n);
      const Rotation rotation{{n + 5}, 5, rounds};
      std::vector<float> rotated(n), back(n, 1.0f);
      Rotate(rotation, values, work, rotated);
      EXPECT_NEAR(SquaredNorm(rotated), SquaredNorm(values), 1e-5 * SquaredNorm(values));
      ASSERT_TRUE(RotateBack(rotation, rotated, {back, {true, 2}}, work));
      for (size_t i = 0; i < n; ++i) EXPECT_NEAR(back[i], 1 + 2 * values[i], 2e-5);
    }
  }
}

TEST(Rotation, PiecesArePowersOfFourThatFillTheVector) {
  const Rotation rotation{{1}, 5, 1};
  size_t at = 0;
  std::vector<size_t> sizes;
  for (; at < 2500; at += sizes.back()) sizes.push_back(RotatedPiece(rotation, at, 2500));
  EXPECT_EQ(at, 2500u);
  EXPECT_EQ(sizes, (std::vector<size_t>{1024, 1024, 256, 64, 64, 64, 4}));
}

// One round of signs 1, 1, 1, ... would give H's first column: all alike.
TEST(Rotation, SpreadsOneValueOverItsBlock) {
  Workspace work;
  std::vector<float> values(4096, 0.0f), rotated(4096);
  values[1234] = 64;
  Rotate({{3}, 6, 1}, values, work, rotated);
  for (float v : rotated) EXPECT_EQ(std::abs(v), 1.0f);
  // A second one makes it look Gaussian: kurtosis 3.
  Rotate({{3}, 6, 2}, values, work, rotated);
  double fourth = 0;
  for (float v : rotated) fourth += std::pow(static_cast<double>(v), 4);
  EXPECT_NEAR(fourth / 4096, 3, 0.5);
}

double NmseOf(const std::string& spec, const std::vector<float>& values) {
  const auto codec = Make(spec);
  double error = 0;
  Workspace work;
  for (uint64_t key = 0; key < 10; ++key) {
    const std::vector<uint8_t> frame = Encode(*codec, values, {key});
    std::vector<float> decoded(values.size());
    EXPECT_TRUE(DecodeFrame(frame, work, decoded).ok());
    for (size_t i = 0; i < values.size(); ++i) decoded[i] -= values[i];
    error += SquaredNorm(decoded) / 10;
  }
  return error / SquaredNorm(values);
}

TEST(Rotate, HelpsQuantisersWithHeavyTailsAlone) {
  std::vector<float> tails = Gaussian(1 << 14), plain = tails;
  for (float& v : tails) v = v * v * v * v * v;
  EXPECT_LT(NmseOf("qsgdv:bits=4|rotate", tails), 0.3 * NmseOf("qsgdv:bits=4", tails));
  EXPECT_NEAR(NmseOf("qsgdv:bits=4|rotate", plain) / NmseOf("qsgdv:bits=4", plain), 1, 0.1);
}

TEST(Rotate, SpecsAreCheckedAndKept) {
  EXPECT_EQ(Make("qsgdv|rotate")->spec(),
            Make("qsgdv")->spec() + "|rotate:block=4096,rounds=1");
  EXPECT_THAT(Make("efsign|rotate:rounds=2|ef")->spec(), HasSubstr("rounds=2|ef"));
  const auto error = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_THAT(error("fp32|rotate"), HasSubstr("loses nothing"));
  EXPECT_THAT(error("efsign|ef|rotate"), HasSubstr("before |ef"));
  EXPECT_THAT(error("alq:bits=3|rotate"), HasSubstr("a codec of fixed levels"));
  EXPECT_THAT(error("amq|rotate"), HasSubstr("fits its levels to gradients"));
  EXPECT_THAT(error("qsgdv|rotate|rotate"), HasSubstr("twice"));
  EXPECT_THAT(error("qsgdv|rotate:block=100"), HasSubstr("4096"));
  EXPECT_THAT(error("qsgdv|rotate:rounds=3"), HasSubstr("1 or 2"));
  EXPECT_THAT(error("qsgdv|rotate:size=4"), HasSubstr("block, rounds"));
}

}  // namespace
}  // namespace elastiquant
