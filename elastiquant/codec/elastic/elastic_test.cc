#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

// A key whose first `n` coordinates all have random fractions in [low, high).
StreamKey KeyWithFractions(size_t n, float low, float high) {
  for (uint64_t message = 0;; ++message) {
    const StreamKey key = DeriveKey(0, 0, 0, message);
    bool all = true;
    for (uint32_t i = 0; i < n && all; ++i) {
      const float u = UniformFloat(RandomBits(MakeLaneKeys(key), i));
      all = u >= low && u < high;
    }
    if (all) return key;
  }
}

constexpr size_t kPayloadAt = 32 + 20;

const std::vector<float> kU1 = {3, -4, 0, 12};

// Two levels between 0 and 1 at p = 1/2 with the L2 norm 13; u = .5 for all.
TEST(Elastic, WorkedExampleOfExponentialLevels) {
  const auto codec = Make("elastic:bits=3,p=0.5,norm=l2");
  const auto q = Decode(Encode(*codec, kU1, KeyWithFractions(4, .45f, .55f)), 4);
  EXPECT_EQ(q, (std::vector<float>{3.25f, -3.25f, 0, 13}));
}

TEST(Elastic, WorkedExampleOfListedLevels) {
  const StreamKey key = KeyWithFractions(4, .28f, .32f);
  const std::string levels = "elastic:levels=0.25/0.5/0.75/1,bucket=4,norm=";
  EXPECT_EQ(Decode(Encode(*Make(levels + "l2"), kU1, key), 4),
            (std::vector<float>{3.25f, -3.25f, 0, 13}));
  EXPECT_EQ(Decode(Encode(*Make(levels + "linf"), kU1, key), 4),
            (std::vector<float>{3, -6, 0, 12}));
}

TEST(Elastic, GaussianErrorIsAsPublished) {
  const std::vector<float> v = Gaussian(size_t{1} << 18);
  const struct {
    const char* spec;
    double nmse;
  } cases[] = {
      {"elastic:levels=uniform", .0362},
      {"elastic:p=0.69", .029},
      {"elastic:levels=uniform,bucket=8192", .0546},
      {"elastic:p=0.67,bucket=8192", .033},
      {"elastic:p=0.5,norm=l2,bucket=512", .087},
      {"elastic:p=0.5,norm=l2,bucket=8192", .335},
      {"elastic:bits=3,levels=uniform", .196},
      {"elastic:bits=8,levels=exp,p=0.5,norm=l2,bucket=8192", .082},
  };
  for (const auto& c : cases) {
    const auto q = Decode(Encode(*Make(c.spec), v, DeriveKey(1, 2, 3, 4)), v.size());
    EXPECT_NEAR(Nmse(v, q), c.nmse, .03 * c.nmse) << c.spec;
  }
}

// The norm that travels: of U1 it is 19, 13, 12.17... and 12.
TEST(Elastic, NormsTravelRoundedUp) {
  const auto norm_of = [](const char* spec, const std::vector<float>& v) {
    float norm;
    const auto frame = Encode(*Make(spec), v, {});
    std::memcpy(&norm, frame.data() + kPayloadAt, sizeof(norm));
    return norm;
  };
  EXPECT_EQ(norm_of("elastic:levels=exp,norm=l1", kU1), 19.0f);
  EXPECT_EQ(norm_of("elastic:levels=exp,norm=l2", kU1), 13.0f);
  EXPECT_EQ(norm_of("elastic:levels=exp,norm=linf", kU1), 12.0f);
  EXPECT_NEAR(norm_of("elastic:levels=exp,norm=l3", kU1), std::cbrt(27.0 + 64 + 1728), 1e-5);
  EXPECT_EQ(norm_of("elastic:levels=exp,norm=l1.0", kU1), 19.0f);
  // sqrt(2) is not a float: the next above is sent.
  EXPECT_GE(static_cast<double>(norm_of("elastic:levels=exp,norm=l2", {1, 1})), std::sqrt(2.0));
  // Long buckets are measured in pieces.
  const std::vector<float> ones(100000, 1.0f);
  EXPECT_EQ(norm_of("elastic:levels=exp,norm=l1,bucket=0", ones), 100000.0f);
  EXPECT_EQ(norm_of("elastic:levels=exp,norm=l2,bucket=90000", ones), 300.0f);
  EXPECT_NEAR(norm_of("elastic:levels=exp,norm=l4,bucket=90000", ones), std::sqrt(300.0), 1e-5);
}

// Sizes of all magnitudes, zeros, and a giant; the exact variance of each coordinate is known.
std::vector<float> Nasty(size_t n) {
  std::vector<float> v = Gaussian(n, 8);
  for (size_t i = 0; i < n; ++i) v[i] *= std::ldexp(1.0f, -static_cast<int>(i % 9));
  v[n / 2] = 0;
  v[n / 3] = -20;
  return v;
}

struct DrawnSums {
  explicit DrawnSums(size_t n) : sum(n), squares(n) {}
  std::vector<double> sum, squares;  // of Q(v) - v
};
DrawnSums Draw(const Codec& codec, const std::vector<float>& v, int draws) {
  DrawnSums m(v.size());
  for (int t = 0; t < draws; ++t) {
    const auto q =
        Decode(Encode(codec, v, DeriveKey(5, static_cast<uint64_t>(t), 0, 0)), v.size());
    for (size_t i = 0; i < v.size(); ++i) {
      const double error = static_cast<double>(q[i]) - static_cast<double>(v[i]);
      m.sum[i] += error;
      m.squares[i] += error * error;
    }
  }
  return m;
}

// Each coordinate by itself: the mean error within 5.5 standard deviations of 0, where the
// variance is (high - r)(r - low) |v|^2 exactly, and the total of squared errors as that says.
void ExpectExactLaw(const std::string& spec, const std::vector<float>& levels,
                    double norm_order) {
  SCOPED_TRACE(spec);
  constexpr int kDraws = 2000;
  const std::vector<float> v = Nasty(96);
  double norm = 0, largest = 20;
  for (float x : v) norm += std::pow(std::fabs(x) / largest, norm_order);
  norm = std::isinf(norm_order) ? largest : largest * std::pow(norm, 1 / norm_order);
  const DrawnSums m = Draw(*Make(spec), v, kDraws);
  double expected = 0, measured = 0, spread = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    const double r = std::fabs(v[i]) / norm;
    size_t j = 0;
    while (j + 2 < levels.size() && r >= static_cast<double>(levels[j + 1])) ++j;
    const double up = std::max(0.0, levels[j + 1] - r) * norm, down = (r - levels[j]) * norm;
    const double variance = up * down;
    expected += variance * kDraws;
    spread += variance * (up - down) * (up - down) * kDraws;  // of the squared error
    measured += m.squares[i];
    // The second term allows for outcomes too rare for a normal law, the third for fp32.
    EXPECT_LE(std::fabs(m.sum[i]), 5.5 * std::sqrt(kDraws * variance) +
                                       16 * (levels[j + 1] - levels[j]) * norm +
                                       kDraws * norm * 1e-7)
        << "coordinate " << i;
  }
  EXPECT_NEAR(measured, expected, 5.5 * std::sqrt(spread) + 1e-4 * expected);
}

std::vector<float> Exponential(int bits, float p) {
  std::vector<float> levels(size_t{1} << (bits - 1));
  float level = 1;
  for (size_t j = levels.size() - 1; j > 0; --j, level *= p) levels[j] = level;
  return levels;
}

TEST(Elastic, EachCoordinateHasTheExactMeanAndVariance) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (int bits = 2; bits <= 8; ++bits) {
    std::string b = "elastic:bits=" + std::to_string(bits);
    ExpectExactLaw(b + ",p=0.5", Exponential(bits, .5f), infinity);
    ExpectExactLaw(b + ",p=0.7,norm=l2", Exponential(bits, .7f), 2);
    std::vector<float> uniform(size_t{1} << (bits - 1));
    for (size_t j = 0; j < uniform.size(); ++j) {
      uniform[j] = static_cast<float>(j) / static_cast<float>(uniform.size() - 1);
    }
    ExpectExactLaw(b + ",levels=uniform,norm=l1", uniform, 1);
    ExpectExactLaw(b + ",levels=uniform,norm=l3|rans", uniform, 3);
  }
  ExpectExactLaw("elastic:levels=0.01/0.2/0.25/0.9/1|elias", {0, .01f, .2f, .25f, .9f, 1},
                 infinity);
}

TEST(Elastic, DitherHasHalfTheWorstVarianceWhateverTheData) {
  constexpr int kDraws = 3000;
  const std::vector<float> v = Nasty(96);
  for (int bits : {2, 3, 4, 6, 8}) {
    const auto codec =
        Make("elastic:levels=uniform,rounding=dither,bits=" + std::to_string(bits));
    const DrawnSums m = Draw(*codec, v, kDraws);
    const double step = 20.0 / ((1 << (bits - 1)) - 1);
    const double variance = step * step / 12;
    double total = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      EXPECT_LE(std::fabs(m.sum[i]), 5.5 * std::sqrt(kDraws * variance)) << i;
      // The fourth moment of the uniform law gives the spread of the second.
      EXPECT_NEAR(m.squares[i] / kDraws, variance, 5.5 * variance * std::sqrt(.8 / kDraws))
          << i;
      total += m.squares[i];
    }
    EXPECT_NEAR(total / kDraws / 96, variance, 5.5 * variance * std::sqrt(.8 / kDraws / 96));
  }
}

TEST(Elastic, AutoRatioFollowsTheBucket) {
  const auto ratio = [](const char* spec, size_t n) {
    float p;
    const auto frame = Encode(*Make(spec), Gaussian(n), {});
    std::memcpy(&p, frame.data() + 32 + 12, sizeof(p));
    return p;
  };
  EXPECT_NEAR(ratio("elastic:levels=exp,bucket=8192", 100), .407f, .0011f);
  EXPECT_NEAR(ratio("elastic:p=auto", 100), .5f, .0021f);
  EXPECT_NEAR(ratio("elastic:bits=5,p=auto,bucket=0", 8192), .642f, .0011f);
  EXPECT_NEAR(ratio("elastic:bits=8,p=auto,bucket=0", 8192), .936f, .0011f);
}

TEST(Elastic, SpecsAreCheckedInWords) {
  const struct {
    const char* spec;
    const char* says;
  } cases[] = {
      {"elastic:bits=1", "2 to 8"},
      {"elastic:bits=9", "2 to 8"},
      {"elastic:bits=4x", "2 to 8"},
      {"elastic:bucket=-1", "0 for one bucket of the whole message"},
      {"elastic:bucket=4294967296", "4294967295"},
      {"elastic:norm=l0.5", "l<q>"},
      {"elastic:norm=max", "linf, l1, l2"},
      {"elastic:norm=linfinity", "linf, l1, l2"},
      {"elastic:norm=lnan", "linf, l1, l2"},
      {"elastic:levels=cubic", "fit, exp, uniform, or a list"},
      {"elastic:levels=fit,p=0.5", "levels=exp only"},
      {"elastic:levels=fit,rounding=dither", "levels=uniform"},
      {"elastic:levels=0.1/0.3", "use another list: the last level must be 1"},
      {"elastic:levels=0.3/0.1/1", "must increase"},
      {"elastic:levels=0.3//1", "a list of levels"},
      {"elastic:bits=2,levels=0.3/1", "2 bits take 1 to 1"},
      {"elastic:p=1", "p must be between 0 and 1"},
      {"elastic:p=x", "auto or a number"},
      {"elastic:bits=8,p=0.1", "cannot tell apart"},
      {"elastic:levels=uniform,p=0.5", "levels=exp only"},
      {"elastic:rounding=nearest", "stochastic or dither"},
      {"elastic:rounding=dither", "levels=uniform"},
      {"elastic|rans|elias", "one modifier"},
      {"elastic|zip", "rans, elias"},
      {"elastic:level=exp", "bits, levels, p, norm, bucket, rounding"},
  };
  for (const auto& c : cases) {
    const Status status = MakeCodec(c.spec).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.spec;
    EXPECT_NE(status.message().find(c.says), std::string::npos)
        << c.spec << ": " << status.message();
  }
}

TEST(Elastic, SpecsAreWrittenInFull) {
  EXPECT_EQ(Make("elastic")->spec(),
            "elastic:bits=4,levels=fit,norm=linf,bucket=512,rounding=stochastic");
  // A ratio is that of exponential levels.
  for (const char* spec : {"elastic:p=auto", "elastic:levels=exp"}) {
    EXPECT_EQ(Make(spec)->spec(),
              "elastic:bits=4,levels=exp,p=auto,norm=linf,bucket=512,rounding=stochastic");
  }
  // Even steps are what entropy coders do best with.
  EXPECT_EQ(Make("elastic|rans")->spec(),
            "elastic:bits=4,levels=uniform,norm=linf,bucket=512,rounding=stochastic|rans");
  EXPECT_EQ(Make("elastic:p=auto|elias")->spec(), Make("elastic:levels=exp|elias")->spec());
  EXPECT_EQ(Make("elastic:levels=0.1/0.3/1,norm=l2.0|rans")->spec(),
            "elastic:bits=4,levels=0.1/0.3/1,norm=l2,bucket=512,rounding=stochastic|rans");
  EXPECT_EQ(Make("elastic:levels=uniform,rounding=dither,norm=l1.5,bits=8|elias")->spec(),
            "elastic:bits=8,levels=uniform,norm=l1.5,bucket=512,rounding=dither|elias");
}

TEST(Elastic, NormsBeyondFp32NameTheBucketAndTheRemedy) {
  for (const char* spec : {"elastic:norm=l1,bucket=100", "elastic:norm=l3,bucket=100",
                           "elastic:norm=l2,bucket=40000"}) {
    std::vector<float> v(100000, 1.0f);
    for (size_t i = 50000; i < 50050; ++i) v[i] = 3e38f;
    const auto codec = Make(spec);
    Workspace work(2);
    std::vector<uint8_t> frame(codec->MaxFrameBytes(v.size()));
    const Status status = codec->Encode(v, {}, work, frame).status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfRange) << spec;
    const char* bucket = std::strstr(spec, "40000") ? "bucket 1," : "bucket 500,";
    EXPECT_NE(status.message().find(bucket), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("norm=linf"), std::string::npos) << status.message();
  }
}

TEST(Elastic, OneValueBeyondWhatDitherTakesIsToldThatOtherRoundingTakesIt) {
  const auto codec = Make("elastic:levels=uniform,rounding=dither");
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(1));
  const Status status = codec->Encode(std::vector{3e38f}, {}, work, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_NE(status.message().find("use rounding=stochastic"), std::string::npos)
      << status.message();
  EXPECT_EQ(status.message().find("norm=linf"), std::string::npos) << status.message();
  EXPECT_TRUE(Make("elastic:levels=uniform")->Encode(std::vector{3e38f}, {}, work, frame).ok());
}

TEST(Elastic, EveryDamagedByteIsRefusedOrHarmless) {
  for (const char* spec :
       {"elastic:bits=3,bucket=7", "elastic:levels=0.1/0.3/1,bucket=0",
        "elastic:bits=3,levels=exp,bucket=7", "elastic:bits=8,levels=0.1/0.3/1|rans",
        "elastic:bucket=64|elias", "elastic:levels=uniform,rounding=dither|rans"}) {
    SCOPED_TRACE(spec);
    const auto step = [](size_t at) {
      if (at < kFrameHeaderBytes) return 0;
      return at < 60 ? 1 : 23;
    };
    const auto frame = Encode(*Make(spec), Gaussian(150), {9});
    ExpectDamageIsRefusedOrHarmless(frame, 150, step);
  }
}

}  // namespace
}  // namespace elastiquant
