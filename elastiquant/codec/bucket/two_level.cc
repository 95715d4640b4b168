// Codecs of two levels a bucket: 1-bit SGD (Seide et al., Interspeech 2014), and BinGrad-b and
// BinGrad-pb (the binary schemes of Xu, Huo and Huang, "Optimal Gradient Quantization Condition
// for Communication-Efficient Distributed Training", 2020).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/bucket/bucket_codec.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/quantize_digits.h"

namespace elastiquant {
namespace {

// The means of the values below `threshold` and of the others; if all are on one side, their
// mean twice. False if a value is not finite.
bool MeasureSides(std::span<const float> v, float threshold, std::span<float> levels) {
  const double sum = Sum(v.data(), v.size());
  if (!std::isfinite(sum)) return false;
  const double above = SumAtLeast(v.data(), v.size(), threshold);
  const size_t count = CountAtLeast(v.data(), v.size(), threshold);
  const bool mixed = count > 0 && count < v.size();
  const auto mean = [&](double total, size_t n) {
    return static_cast<float>(mixed ? total / static_cast<double>(n)
                                    : sum / static_cast<double>(v.size()));
  };
  levels[0] = mean(sum - above, v.size() - count);
  levels[1] = mean(above, count);
  return true;
}

class OneBit : public BucketQuantiser {
 public:
  bool Measure(std::span<const float> bucket, std::span<uint8_t>,
               std::span<float> side) const override {
    return MeasureSides(bucket, 0, side);
  }
  void Quantise(std::span<const float> values, std::span<const float>, RandomRun,
                uint8_t* digits) const override {
    QuantizeSides(values.data(), values.size(), 0, digits);
  }
};

// Levels by the threshold mean(v), then `rounds` of Lloyd's algorithm; values go to the nearer
// level, as the optimal condition wants it.
class BinGradB : public BucketQuantiser {
 public:
  explicit BinGradB(int rounds) : rounds_(rounds) {}

  bool Measure(std::span<const float> bucket, std::span<uint8_t>,
               std::span<float> side) const override {
    const double mean = Sum(bucket.data(), bucket.size()) / static_cast<double>(bucket.size());
    bool good = std::isfinite(mean) && MeasureSides(bucket, static_cast<float>(mean), side);
    for (int round = 0; good && round < rounds_; ++round) {
      good = MeasureSides(bucket, Threshold(side), side);
    }
    return good;
  }
  void Quantise(std::span<const float> values, std::span<const float> side, RandomRun,
                uint8_t* digits) const override {
    QuantizeSides(values.data(), values.size(), Threshold(side), digits);
  }

 private:
  static float Threshold(std::span<const float> levels) {
    return 0.5f * levels[0] + 0.5f * levels[1];
  }
  const int rounds_;
};

// Levels +-b: smaller values are rounded stochastically, larger ones cut off. The least error
// has the b with b = (1/d) sum of the |v| >= b, of which there is one: the right side falls as
// b grows.
class BinGradPb : public BucketQuantiser {
 public:
  size_t ScratchBytes(size_t n) const override { return n * sizeof(float); }

  bool Measure(std::span<const float> bucket, std::span<uint8_t> scratch,
               std::span<float> side) const override {
    const uint32_t largest = AbsMaxBits(bucket.data(), bucket.size());
    if (largest >= kNonFiniteBits) return false;
    float* sizes = reinterpret_cast<float*>(scratch.data());
    for (size_t i = 0; i < bucket.size(); ++i) sizes[i] = std::fabs(bucket[i]);
    side[0] = Solve({sizes, bucket.size()});
    return true;
  }

  void Quantise(std::span<const float> values, std::span<const float> side, RandomRun random,
                uint8_t* digits) const override {
    const float levels[] = {-side[0], side[0]};
    DigitLevels table;
    FillDigitLevels(levels, &table);
    QuantizeDigits(values.data(), values.size(), random, table, table.pre, 1, digits);
  }

 private:
  // A b from below, to which the sum is at most a part of 2^-13 too large. Then the best one is
  // no further away, and the error is at most 2^-25 |v|^2 above the least.
  static float Solve(std::span<const float> sizes) {
    constexpr float kCloseSum = 0x1p-13f, kCloseEnds = 0x1p-22f;
    const double d = static_cast<double>(sizes.size());
    // What is left of the condition at b; falling.
    const auto rest = [&](float b) {
      return SumAtLeast(sizes.data(), sizes.size(), b) / d - static_cast<double>(b);
    };
    float low = 0, high = static_cast<float>(SumAbs(sizes.data(), sizes.size()) / d);
    double at_low = high, at_high = rest(high);
    if (at_high >= 0) return high;
    // Among denormals the ends may be neighbours before they are close.
    const auto are_apart = [&] {
      return high - low > kCloseEnds * high && std::nextafter(low, high) < high;
    };
    for (int step = 0; step < 60 && are_apart(); ++step) {
      // Where the line between both ends crosses 0; an end that stays is pulled down, or it
      // would stay for ever (the Illinois method). Then bisection, should that be slow.
      const double share = step < 20 ? at_low / (at_low - at_high) : 0.5;
      const auto guess = static_cast<float>(low + (high - low) * share);
      const float b = std::clamp(guess, std::nextafter(low, high), std::nextafter(high, low));
      const double at = rest(b);
      if (at >= 0) {
        low = b;
        at_low = at;
        at_high /= 2;
        if (at <= static_cast<double>(kCloseSum * low)) return Best(sizes, low, at);
      } else {
        high = b;
        at_high = at;
        at_low /= 2;
      }
    }
    return low;
  }

  // If no value is between b and its sum, that is the best b itself.
  static float Best(std::span<const float> sizes, float b, double rest) {
    const auto sum = static_cast<float>(static_cast<double>(b) + rest);
    const auto count = [&](float least) {
      return CountAtLeast(sizes.data(), sizes.size(), least);
    };
    return count(sum) == count(b) ? sum : b;
  }
};

Result<std::shared_ptr<const Codec>> MakeTwoLevels(
    const Spec& spec, const std::string& keys, std::shared_ptr<const BucketQuantiser> quantiser,
    std::function<std::optional<double>(double)> bound) {
  BucketScheme scheme;
  scheme.format.codec = CodecId::kLevels;
  scheme.format.radix = 2;
  EQ_ASSIGN_OR_RETURN(scheme.format.bucket,
                      ParseBucketKey(spec.codec, 2048, ~uint32_t{0}, true));
  scheme.spec = spec.codec.name + ":" + keys + "bucket=" + std::to_string(scheme.format.bucket);
  scheme.codec_class = CodecClass::kContractive;
  scheme.quantiser = std::move(quantiser);
  scheme.bound = std::move(bound);
  return MakeBucketCodec(std::move(scheme));
}

Result<std::shared_ptr<const Codec>> MakeOneBit(const Spec& spec) {
  // What means of n_1 and n_2 values keep is at least (S_1^2 + S_2^2) / d with the sums' sizes
  // S, and so at least |v|_1^2 / d >= |v|_2^2 / d.
  return MakeTwoLevels(spec, "", std::make_shared<OneBit>(),
                       [](double d) { return 1 - 1 / d + 0x1p-40; });
}

Result<std::shared_ptr<const Codec>> MakeBinGradB(const Spec& spec) {
  const std::string_view text = SpecValue(spec.codec, "lloyd", "0");
  int rounds = 0;
  if (!ParseNumber(text, &rounds) || rounds < 0 || rounds > 100) {
    return BadKey(spec.codec, "lloyd", text, "0 to 100");
  }
  // The mean is kept; of the deviations from it, which make P on either side, at least
  // P^2 / n_1 + P^2 / n_2 >= 4 P^2 / d, and their squares are at most 2 P^2.
  return MakeTwoLevels(spec, "lloyd=" + std::to_string(rounds) + ",",
                       std::make_shared<BinGradB>(rounds),
                       [](double d) { return std::max(0.0, 1 - 2 / d) + 0x1p-40; });
}

Result<std::shared_ptr<const Codec>> MakeBinGradPb(const Spec& spec) {
  BucketScheme scheme;
  EQ_ASSIGN_OR_RETURN(scheme.format.bucket,
                      ParseBucketKey(spec.codec, 2048, kLargestSortedBucket, false));
  scheme.format.codec = CodecId::kSign;
  EQ_RETURN_IF_ERROR(FillTable({}, &scheme.format));
  scheme.spec = "bingrad-pb:bucket=" + std::to_string(scheme.format.bucket);
  scheme.codec_class = CodecClass::kContractive;
  scheme.quantiser = std::make_shared<BinGradPb>();
  // With S the sum of the |v| >= b: the error is the sum of their squares, less that of the
  // others', less S^2 / d; and S^2 is at least the sum of the squares.
  scheme.bound = [](double d) { return 1 - 1 / d + 0x1p-19; };
  return MakeBucketCodec(std::move(scheme));
}

CodecParameter BucketKey() {
  return {"bucket", "2048", "coordinates that share levels; 0: the whole message"};
}

}  // namespace

const CodecFamily& OneBitFamily() {
  static const CodecFamily family{
      CodecId::kLevels,
      {"onebit",
       "onebit:bucket=2048",
       CodecClass::kContractive,
       "1-bit SGD: the mean of the positive and of the negative values; meant for |ef",
       {BucketKey()},
       {}},
      {"onebit", "onebit:bucket=0", "onebit:bucket=33", "onebit:bucket=40000"},
      MakeOneBit,
      DecodeBucketCodes};
  return family;
}

const CodecFamily& BinGradBFamily() {
  static const CodecFamily family{
      CodecId::kLevels,
      {"bingrad-b",
       "bingrad-b:lloyd=0,bucket=2048",
       CodecClass::kContractive,
       "BinGrad-b: the means of the values on either side of the mean",
       {{"lloyd", "0", "0 to 100: rounds that move the threshold to between the means"},
        BucketKey()},
       {}},
      {"bingrad-b", "bingrad-b:bucket=0", "bingrad-b:lloyd=3,bucket=33"},
      MakeBinGradB,
      DecodeBucketCodes};
  return family;
}

const CodecFamily& BinGradPbFamily() {
  static const CodecFamily family{
      CodecId::kSign,
      {"bingrad-pb",
       "bingrad-pb:bucket=2048",
       CodecClass::kContractive,
       "BinGrad-pb: stochastic rounding to the two levels +-b of least error, cut off there",
       {{"bucket", "2048", "1 to 32768: coordinates that share b"}},
       {}},
      {"bingrad-pb", "bingrad-pb:bucket=32768", "bingrad-pb:bucket=33"},
      MakeBinGradPb,
      DecodeBucketCodes};
  return family;
}

}  // namespace elastiquant
