// Codecs that fit levels to each bucket: ORQ (Xu, Huo and Huang, "Optimal Gradient Quantization
// Condition for Communication-Efficient Distributed Training", 2020) and QUIVER (Ben-Basat et
// al., "Optimal and Near-Optimal Adaptive Vector Quantization", 2024).
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/bucket/bucket_codec.h"
#include "elastiquant/codec/bucket/optimal_levels.h"
#include "elastiquant/codec/deviation_clip.h"
#include "elastiquant/kernels/digits.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/quantize_digits.h"
#include "elastiquant/kernels/sparse/sort.h"

namespace elastiquant {
namespace {

class Fitted : public BucketQuantiser {
 public:
  bool Measure(std::span<const float> bucket, std::span<uint8_t> scratch,
               std::span<float> side) const override {
    if (AbsMaxBits(bucket.data(), bucket.size()) >= kNonFiniteBits) return false;
    const size_t n = bucket.size();
    const size_t before = (ScratchBytes(n) - n * sizeof(float));
    float* values = reinterpret_cast<float*>(scratch.data() + before);
    // Adding 0 makes 0 of -0, which sorts to either side of it.
    for (size_t i = 0; i < n; ++i) values[i] = bucket[i] + 0.0f;
    Fit({values, n}, scratch.first(before), side);
    return true;
  }
  size_t ScratchBytes(size_t n) const override { return FitBytes(n) + n * sizeof(float); }

  void Quantise(std::span<const float> values, std::span<const float> side, RandomRun random,
                uint8_t* digits) const override {
    DigitLevels table;
    FillDigitLevels(side, &table);
    QuantizeDigits(values.data(), values.size(), random, table, table.pre, 1, digits);
  }

 private:
  // A multiple of 8.
  virtual size_t FitBytes(size_t n) const = 0;
  virtual void Fit(std::span<float> values, std::span<uint8_t> scratch,
                   std::span<float> levels) const = 0;
};

class Orq : public Fitted {
 public:
  explicit Orq(float clip) : clip_(clip) {}

 private:
  size_t FitBytes(size_t n) const override { return (n + 1) * sizeof(double); }

  void Fit(std::span<float> values, std::span<uint8_t> scratch,
           std::span<float> levels) const override {
    if (clip_ > 0) {
      const float most = DeviationClip(values, clip_);
      for (float& v : values) v = std::clamp(v, -most, most);
    }
    SortFloats(values.data(), values.size());
    OrqLevels(values, {reinterpret_cast<double*>(scratch.data()), values.size() + 1}, levels);
  }

  const float clip_;
};

class Quiver : public Fitted {
 public:
  Quiver(size_t levels, size_t bins) : levels_(levels), bins_(bins) {}

 private:
  size_t FitBytes(size_t n) const override {
    const size_t bytes = QuiverScratchBytes(bins_ > 0 ? bins_ + 1 : n, levels_);
    return CeilDivide(bytes, sizeof(double)) * sizeof(double);
  }

  void Fit(std::span<float> values, std::span<uint8_t> scratch,
           std::span<float> levels) const override {
    if (bins_ > 0) return QuiverGridLevels(values, bins_, scratch, levels);
    SortFloats(values.data(), values.size());
    QuiverLevels(values, scratch, levels);
  }

  const size_t levels_, bins_;  // bins 0: exact
};

// With 0 as a level between the ends the error is at most that of TernGrad on either side, and
// no set with as many levels that is best has more.
double ThreeLevelBound(double d) { return (std::sqrt(d) - 1) / 2 * (1 + 0x1p-20) + 0x1p-40; }

Result<BucketScheme> FittedScheme(const Spec& spec, int levels, const std::string& keys) {
  BucketScheme scheme;
  EQ_ASSIGN_OR_RETURN(scheme.format.bucket,
                      ParseBucketKey(spec.codec, 2048, kLargestSortedBucket, false));
  scheme.format.codec = CodecId::kLevels;
  scheme.format.radix = levels;
  scheme.format.coding = DigitCoding(spec);
  scheme.codec_class = CodecClass::kUnbiased;
  scheme.spec = spec.codec.name + ":levels=" + std::to_string(levels) + keys +
                ",bucket=" + std::to_string(scheme.format.bucket) +
                (spec.modifiers.empty() ? "" : "|rans");
  return scheme;
}

Result<std::shared_ptr<const Codec>> MakeOrq(const Spec& spec) {
  const std::string_view text = SpecValue(spec.codec, "levels", "9");
  int levels = 0;
  if (!ParseNumber(text, &levels) || levels < 3 || levels > 9 ||
      !std::has_single_bit(levels - 1u)) {
    return BadKey(spec.codec, "levels", text, "3, 5 or 9");
  }
  const std::string_view clip_text = SpecValue(spec.codec, "clip", "0");
  float clip = 0;
  if (!ParseNumber(clip_text, &clip) || !(clip >= 0 && clip <= 1000)) {
    return BadKey(spec.codec, "clip", clip_text, "0 for none, or a number up to 1000");
  }
  EQ_ASSIGN_OR_RETURN(BucketScheme scheme,
                      FittedScheme(spec, levels, ",clip=" + NumberText(clip)));
  scheme.quantiser = std::make_shared<Orq>(clip);
  if (clip > 0) {
    scheme.codec_class = CodecClass::kBiased;
  } else {
    scheme.bound = ThreeLevelBound;
  }
  return MakeBucketCodec(std::move(scheme));
}

Result<std::shared_ptr<const Codec>> MakeQuiver(const Spec& spec) {
  const std::string_view text = SpecValue(spec.codec, "levels", "16");
  int levels = 0;
  if (!ParseNumber(text, &levels) || levels < 3 || !IsDigitBase(levels)) {
    return BadKey(spec.codec, "levels", text, "3 to 16, 32, 64, 128 or 256");
  }
  const std::string_view bins_text = SpecValue(spec.codec, "bins", "0");
  size_t bins = 0;
  if (!ParseNumber(bins_text, &bins) || bins > 32767 ||
      (bins > 0 && bins < static_cast<size_t>(levels))) {
    return BadKey(spec.codec, "bins", bins_text,
                  "0 for the exact optimum, or from the number of levels to 32767");
  }
  EQ_ASSIGN_OR_RETURN(BucketScheme scheme,
                      FittedScheme(spec, levels, ",bins=" + std::to_string(bins)));
  scheme.quantiser = std::make_shared<Quiver>(static_cast<size_t>(levels), bins);
  if (bins == 0) {
    scheme.bound = ThreeLevelBound;
  } else if (levels > 3) {
    // With the places on both sides of 0, what lies between them costs a quarter of a squared
    // width more; and the squared range is at most 2 |v|^2.
    const double m = static_cast<double>(bins);
    scheme.bound = [m](double d) { return ThreeLevelBound(d) + d / (2 * m * m); };
  }
  return MakeBucketCodec(std::move(scheme));
}

}  // namespace

const CodecFamily& OrqFamily() {
  static const CodecFamily family{
      CodecId::kLevels,
      {"orq",
       "orq:levels=9,clip=0,bucket=2048",
       CodecClass::kUnbiased,
       "ORQ: levels by the optimal condition, halving each bucket's values again and again",
       {{"levels", "9", "3, 5 or 9"},
        {"clip", "0", "standard deviations at which values are cut off (biased); 0: none"},
        {"bucket", "2048", "1 to 32768: coordinates that share levels"}},
       {"rans"}},
      {"orq", "orq:levels=3", "orq:levels=5,bucket=33", "orq:levels=9,bucket=512|rans",
       "orq:levels=5,clip=2.5,bucket=32768"},
      MakeOrq,
      DecodeBucketCodes};
  return family;
}

const CodecFamily& QuiverFamily() {
  static const CodecFamily family{
      CodecId::kLevels,
      {"quiver",
       "quiver:levels=16,bins=0,bucket=2048",
       CodecClass::kUnbiased,
       "QUIVER: the levels of least error that each bucket can have",
       {{"levels", "16", "3 to 16, 32, 64, 128 or 256"},
        {"bins", "0",
         "places of a histogram to take levels from, up to 32767; 0: any, exactly"},
        {"bucket", "2048", "1 to 32768: coordinates that share levels"}},
       {"rans"}},
      {"quiver:bucket=500", "quiver:levels=3,bucket=33", "quiver:bins=400,bucket=8192",
       "quiver:levels=32,bins=100,bucket=1000|rans", "quiver:levels=4,bins=20,bucket=100"},
      MakeQuiver,
      DecodeBucketCodes};
  return family;
}

}  // namespace elastiquant
