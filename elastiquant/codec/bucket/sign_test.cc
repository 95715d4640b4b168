#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

TEST(SignSgd, SendsTheSignsOnly) {
  EXPECT_EQ(RoundTrip("signsgd", {0.25f, -3, 0, -0.0f, 1e-40f}),
            (std::vector<float>{1, -1, 1, 1, 1}));
}

// What the owner of a chunk does: add the workers' frames, and encode the sum.
TEST(SignSgd, TheSignOfSummedSignsIsTheMajorityVote) {
  const std::vector<std::vector<float>> workers{{1, -9, 2}, {2, -1, -8}, {-90, -1, -7}};
  std::vector<float> sum(3);
  Workspace work;
  for (const std::vector<float>& v : workers) {
    ASSERT_TRUE(DecodeAddFrame(Encode(*Make("signsgd"), v, {1}), 1, work, sum).ok());
  }
  EXPECT_EQ(RoundTrip("signsgd", sum), (std::vector<float>{1, -1, -1}));
}

TEST(EfSign, ScaleIsTheMeanSize) {
  const std::vector<float> v{1, -2, 3, -10};
  const std::vector<float> q = RoundTrip("efsign", v);
  EXPECT_EQ(q, (std::vector<float>{4, -4, 4, -4}));
  // 1 - |v|_1^2 / (d |v|_2^2)
  EXPECT_NEAR(1 - Nmse(v, q), .5614, 5e-5);
}

TEST(EfSign, TheErrorMemoryIsWhatWasLost) {
  const auto codec = Make("efsign|ef");
  const std::vector<float> v{1, -2, 3, -10}, before(4);
  std::vector<float> after(4);
  std::vector<uint8_t> frame(codec->MaxFrameBytes(4));
  Workspace work;
  const std::vector<std::span<const float>> in{before};
  const std::vector<std::span<float>> out{after};
  ASSERT_TRUE(codec->EncodeNext(v, {1}, work, frame, in, out).ok());
  EXPECT_EQ(after, (std::vector<float>{-3, 2, -1, -6}));
}

TEST(EfSign, BitsAreOneAndAScaleABucket) {
  const std::vector<float> v = Gaussian(4096);
  EXPECT_EQ(Encode(*Make("efsign:bucket=2048"), v, {1}).size(), 32u + 12 + 2 * 4 + 512);
  EXPECT_EQ(Encode(*Make("signsgd"), v, {1}).size(), 32u + 12 + 4 + 512);
}

TEST(EfSign, GaussianErrorIsAsPredicted) {
  const std::vector<float> v = Gaussian(size_t{1} << 18);
  EXPECT_NEAR(Nmse(v, RoundTrip("efsign", v)), 1 - 2 / M_PI, .003);
}

TEST(EfSign, TheBoundIsMetByOneLonelyCoordinate) {
  std::vector<float> v(64);
  v[5] = -3;
  EXPECT_NEAR(Nmse(v, RoundTrip("efsign", v)), 1 - 1.0 / 64, 1e-6);
  EXPECT_NEAR(*Make("efsign")->NmseBound(64), 1 - 1.0 / 64, 1e-9);
  EXPECT_NEAR(*Make("efsign")->NmseBound(100000), 1 - 1.0 / 2048, 1e-9);
}

TEST(EfSign, ErrorsNameTheCodecAndWhatIsValid) {
  const auto message = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_EQ(
      message("efsign:bucket=x"),
      "codec 'efsign': bucket=x is not valid; use 1 to 4294967295, or 0 for one bucket of "
      "the whole message");
  EXPECT_EQ(message("signsgd:bucket=3"), "codec 'signsgd' has no key 'bucket'; valid: none");
}

}  // namespace
}  // namespace elastiquant
