#include "elastiquant/theory/code_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/codec/frame.h"
#include "elastiquant/coding/elias_omega.h"
#include "elastiquant/theory/omega_hull.h"
#include "elastiquant/theory/theory_test_util.h"

namespace elastiquant::theory {
namespace {

TEST(OmegaHull, LiesAboveEveryCodeAndTouchesSome) {
  int touched = 0;
  for (uint64_t k = 1; k <= 1'000'000; k = k < 5000 ? k + 1 : k + k / 50) {
    const double length = EncodeOmega(k).length;
    const double hull = OmegaHullAt(static_cast<double>(k));
    EXPECT_GE(hull, length - 1e-9) << k;
    EXPECT_LE(length, 1 + 2.5 * std::floor(std::log2(k))) << k;
    touched += hull < length + 1e-9 ? 1 : 0;
  }
  EXPECT_GE(touched, 5);
  EXPECT_EQ(OmegaHullAt(1), 1);
  EXPECT_EQ(OmegaHullAt(2), 3);
  EXPECT_GE(OmegaHullAt(0x1p32), EncodeOmega(kMaxOmegaValue).length - 1e-9);
}

// Means over draws of frames of one bucket under `|elias`, without header, tiles' ends and
// norm.
struct Measured {
  double bits = 0;
  double nonzeros = 0;
};
Measured Measure(const Codec& codec, const ElasticFormat& format, const std::vector<float>& v) {
  constexpr int kDraws = 60;
  const ElasticLayout layout(format, v.size());
  const double front = static_cast<double>(FramePayloadOffset(kElasticParameterBytes) +
                                           layout.places().tiles_at());
  Measured measured;
  for (int draw = 0; draw < kDraws; ++draw) {
    const auto frame = Encode(codec, v, DeriveKey(3, static_cast<uint64_t>(draw), 0, 0));
    measured.bits += 8 * (static_cast<double>(frame.size()) - front) / kDraws;
    const auto decoded = Decode(frame, v.size());
    const auto zeros = std::count(decoded.begin(), decoded.end(), 0.0f);
    measured.nonzeros += static_cast<double>(v.size() - static_cast<size_t>(zeros)) / kDraws;
  }
  return measured;
}

TEST(NonzerosBound, HoldsAndEqualCoordinatesAttainIt) {
  std::mt19937 random(4);
  for (const char* norm : {"l1", "l2", "l3", "linf"}) {
    for (int bits : {3, 4}) {
      const auto spec = "elastic:p=0.5,bucket=0,norm=" + std::string(norm) +
                        ",bits=" + std::to_string(bits) + "|elias";
      const auto format = FormatOf(spec);
      const double q = OrderOf(format.norm);
      const double bound = NonzerosBound(format.levels.values[1], 4096, q);
      EXPECT_LE(bound, PublishedNonzerosBound(format.levels.values[1], 4096) + 4096 * (q > 2));
      for (const char* kind : kKinds) {
        const auto measured = Measure(*Make(spec), format, VectorOf(kind, 4096, random));
        EXPECT_LE(measured.nonzeros, bound * 1.02 + 1) << spec << kind;
        if (kind == std::string("constant")) {
          EXPECT_NEAR(measured.nonzeros, bound, .02 * bound + 1) << spec;
        }
      }
    }
  }
}

// The published form fails, the explicit one holds. The measured length is that of the code
// with its count of nonzeros, without which it cannot be decoded: at most 20 bits, allowed for.
TEST(PublishedCodeLength, IsExceededByEqualCoordinatesAndTheExplicitFormIsNot) {
  std::mt19937 random(9);
  double worst_published = 0, worst_explicit = 0, worst_of_noise = 0;
  for (int bits : {3, 4}) {
    const int s = InnerLevels(bits);
    for (size_t d : {1024u, 4096u, 16384u, 65536u}) {
      const auto published = PublishedCodeLength(s, static_cast<double>(d));
      const auto safe = ExplicitCodeLength(s, static_cast<double>(d));
      ASSERT_EQ(published.has_value(), safe.has_value());
      if (!published) continue;
      const auto spec = "nuqsgd:bucket=0,bits=" + std::to_string(bits) + "|elias";
      const auto format =
          FormatOf("elastic:p=0.5,norm=l2,bucket=0,bits=" + std::to_string(bits) + "|elias");
      for (const char* kind : {"constant", "gauss", "laplace"}) {
        const double measured =
            Measure(*Make(spec), format, VectorOf(kind, d, random)).bits + 32;
        const double ratio = (measured - 20) / *published;
        double& worst = kind == std::string("constant") ? worst_published : worst_of_noise;
        worst = std::max(worst, ratio);
        worst_explicit = std::max(worst_explicit, measured / *safe);
      }
    }
  }
  EXPECT_NEAR(worst_published, 1.09, .05);
  EXPECT_LT(worst_of_noise, 0.95);
  EXPECT_LT(worst_explicit, 0.7);
  EXPECT_GT(worst_explicit, 0.4);
}

TEST(PublishedCodeLength, IsClaimedForFewNonzerosOnly) {
  EXPECT_FALSE(PublishedCodeLength(6, 8192).has_value());
  EXPECT_FALSE(ExplicitCodeLength(6, 8192).has_value());
  EXPECT_TRUE(PublishedCodeLength(2, 8192).has_value());
}

// EliasBound against the real codec: every kind of vector, and the equal ones, which come
// close.
TEST(EliasBound, HoldsForTheRealCodecAndIsNotVacuous) {
  std::mt19937 random(6);
  double largest_overall = 0;
  for (const char* spec : {"elastic:bits=3,p=0.5,norm=l2,bucket=0|elias",
                           "elastic:bits=4,norm=l2,bucket=0,levels=exp|elias",
                           "elastic:bits=4,norm=l1,bucket=0,levels=exp|elias",
                           "elastic:bits=3,p=0.5,norm=l3,bucket=0|elias",
                           "elastic:bits=4,levels=uniform,norm=l2,bucket=0|elias",
                           "elastic:bits=8,norm=l2,bucket=0,levels=exp|elias",
                           "elastic:bits=4,norm=linf,bucket=0,levels=exp|elias"}) {
    const auto codec = Make(spec);
    double largest = 0;
    for (size_t d : {64u, 1000u, 8192u}) {
      auto format = FormatOf(spec);
      if (format.p == 0 && format.family == LevelFamily::kExponential) ResolveRatio(d, &format);
      const double bound =
          EliasBound(format.levels, static_cast<double>(d), OrderOf(format.norm));
      for (const char* kind : kKinds) {
        const double bits = Measure(*codec, format, VectorOf(kind, d, random)).bits;
        // Frames end on whole bytes, and 60 draws have some noise left.
        EXPECT_LE(bits, bound * 1.01 + 10) << spec << " " << kind << " " << d;
        largest = std::max(largest, bits / bound);
      }
    }
    EXPECT_GT(largest, 0.5) << spec;
    largest_overall = std::max(largest_overall, largest);
  }
  RecordProperty("largest_part_of_the_bound", std::to_string(largest_overall));
  EXPECT_GT(largest_overall, 0.9);
}

TEST(EliasBound, IsTheTruthForCoordinatesThatAllHaveTheLastLevel) {
  const LevelSet levels = UniformLevels(2);  // 0 and 1
  // 512 gaps of 1, signs and levels of 1, and omega(513).
  EXPECT_NEAR(EliasBound(levels, 512, kInfinity), 512 * 3 + EncodeOmega(513).length, 1);
}

TEST(ExpectedFrameBits, BoundsWholeFrames) {
  std::mt19937 random(6);
  for (const char* spec :
       {"elastic:bits=4,levels=exp", "elastic:bits=3,norm=l2,levels=exp|elias",
        "elastic:bits=3,bucket=100000,levels=exp|elias", "elastic:bits=4,levels=exp|rans",
        "elastic:bits=4,levels=0.1/0.3/1,norm=l2,bucket=64|elias"}) {
    const auto format = FormatOf(spec);
    const auto codec = Make(spec);
    for (size_t n : {1u, 511u, 513u, 70000u}) {
      const double bound = ExpectedFrameBits(format, n);
      EXPECT_LE(bound, 8.0 * static_cast<double>(codec->MaxFrameBytes(n)));
      for (const char* kind : {"gauss", "constant"}) {
        const auto frame = Encode(*codec, VectorOf(kind, n, random), DeriveKey(1, 2, 3, 4));
        EXPECT_LE(8.0 * static_cast<double>(frame.size()), bound * 1.01 + 64)
            << spec << " " << kind << " " << n;
      }
    }
  }
  // Fixed width is exact.
  const auto frame =
      Encode(*Make("elastic:bits=4,levels=exp"), Gaussian(5000), DeriveKey(1, 2, 3, 4));
  EXPECT_EQ(ExpectedFrameBits(FormatOf("elastic:bits=4,levels=exp"), 5000),
            8.0 * static_cast<double>(frame.size()));
}

}  // namespace
}  // namespace elastiquant::theory
