// Codecs of one bit, the sign: signSGD (Bernstein et al., ICML 2018) and the scaled sign of
// EF-signSGD (Karimireddy et al., ICML 2019).
#include <algorithm>
#include <cmath>
#include <string>

#include "elastiquant/codec/bucket/bucket_codec.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/quantize_digits.h"

namespace elastiquant {
namespace {

// Digit 1 stands for +scale, and the sign of 0 is +.
class Signs : public BucketQuantiser {
 public:
  void Quantise(std::span<const float> values, std::span<const float>, RandomRun,
                uint8_t* digits) const override {
    QuantizeSides(values.data(), values.size(), 0, digits);
  }
};

// Scale 1. Owners of the two-phase all-reduce add the workers' signs and send the sign of the
// sum: the majority vote.
class UnitSigns : public Signs {
 public:
  bool Measure(std::span<const float> bucket, std::span<uint8_t>,
               std::span<float> side) const override {
    const uint32_t largest = AbsMaxBits(bucket.data(), bucket.size());
    side[0] = largest > 0 ? 1 : 0;
    return largest < kNonFiniteBits;
  }
};

// The scale of least error, mean |v|.
class MeanSigns : public Signs {
 public:
  bool Measure(std::span<const float> bucket, std::span<uint8_t>,
               std::span<float> side) const override {
    const double sum = SumAbs(bucket.data(), bucket.size());
    side[0] = static_cast<float>(sum / static_cast<double>(bucket.size()));
    return std::isfinite(sum);
  }
};

BucketFormat SignFormat(uint32_t bucket) {
  BucketFormat format;
  format.codec = CodecId::kSign;
  format.bucket = bucket;
  const Status filled = FillTable({}, &format);
  return filled.ok() ? format : BucketFormat{};
}

Result<std::shared_ptr<const Codec>> MakeSignSgd(const Spec&) {
  BucketScheme scheme;
  scheme.spec = "signsgd";
  scheme.format = SignFormat(0);
  scheme.quantiser = std::make_shared<UnitSigns>();
  return MakeBucketCodec(std::move(scheme));
}

Result<std::shared_ptr<const Codec>> MakeEfSign(const Spec& spec) {
  BucketScheme scheme;
  EQ_ASSIGN_OR_RETURN(const uint32_t bucket,
                      ParseBucketKey(spec.codec, 2048, ~uint32_t{0}, true));
  scheme.spec = "efsign:bucket=" + std::to_string(bucket);
  scheme.codec_class = CodecClass::kContractive;
  scheme.format = SignFormat(bucket);
  scheme.quantiser = std::make_shared<MeanSigns>();
  // The error is |v|_2^2 - |v|_1^2 / d (Karimireddy et al., 2019, Lemma 8).
  scheme.bound = [](double d) { return 1 - 1 / d + 0x1p-40; };
  return MakeBucketCodec(std::move(scheme));
}

}  // namespace

const CodecFamily& SignSgdFamily() {
  static const CodecFamily family{
      CodecId::kSign,
      {"signsgd",
       "signsgd",
       CodecClass::kBiased,
       "signSGD: the signs alone; the all-reduce makes a majority vote of them",
       {},
       {}},
      {"signsgd"},
      MakeSignSgd,
      DecodeBucketCodes};
  return family;
}

const CodecFamily& EfSignFamily() {
  static const CodecFamily family{
      CodecId::kSign,
      {"efsign",
       "efsign:bucket=2048",
       CodecClass::kContractive,
       "EF-signSGD: signs times the mean size of each bucket; meant for |ef",
       {{"bucket", "2048", "coordinates that share a scale; 0: the whole message"}},
       {}},
      {"efsign", "efsign:bucket=0", "efsign:bucket=33", "efsign:bucket=40000"},
      MakeEfSign,
      DecodeBucketCodes};
  return family;
}

}  // namespace elastiquant
