// TernGrad (Wen et al., NeurIPS 2017): stochastic rounding to -1, 0 and 1 times a scale, after
// clipping at a multiple of the standard deviation.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/bucket/bucket_codec.h"
#include "elastiquant/codec/bucket/shared_scale.h"
#include "elastiquant/codec/deviation_clip.h"
#include "elastiquant/codec/terngrad_by_tensor.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

class TernGrad : public BucketQuantiser {
 public:
  // clip: in standard deviations, 0 for none. fixed_scale: what all workers agreed on, or 0.
  TernGrad(float clip, float fixed_scale) : clip_(clip), fixed_scale_(fixed_scale) {}

  bool Measure(std::span<const float> bucket, std::span<uint8_t>,
               std::span<float> side) const override {
    const uint32_t largest = AbsMaxBits(bucket.data(), bucket.size());
    if (largest >= kNonFiniteBits) return false;
    side[0] = std::bit_cast<float>(largest);
    if (clip_ > 0 && largest > 0) side[0] = std::min(side[0], DeviationClip(bucket, clip_));
    if (fixed_scale_ > 0) side[0] = fixed_scale_;
    return true;
  }

  void Quantise(std::span<const float> values, std::span<const float> side, RandomRun random,
                uint8_t* digits) const override {
    if (side[0] == 0) {
      std::fill_n(digits, values.size(), uint8_t{0});
      return;
    }
    constexpr int kBits = 2;
    QuantizeUniform(values.data(), values.size(), random,
                    MakeScaler(side[0], UniformTop(kBits)), kBits, digits);
    // Sign and magnitude, of which the negative zero is never made: 0, 1, 3 become 0, 1, 2.
    for (size_t i = 0; i < values.size(); ++i) {
      digits[i] = static_cast<uint8_t>(digits[i] - (digits[i] >> 1));
    }
  }

 private:
  const float clip_, fixed_scale_;
};

Result<float> ParseSize(const SpecPart& part, std::string_view key, std::string_view fallback,
                        float most) {
  const std::string_view text = SpecValue(part, key, fallback);
  float value = 0;
  if (ParseNumber(text, &value) && value >= 0 && value <= most) return value;
  return BadKey(part, key, text, "0 for none, or a number from 1e-45 to " + NumberText(most));
}

Result<std::shared_ptr<const Codec>> MakeTernGrad(const Spec& spec) {
  BucketScheme scheme;
  EQ_ASSIGN_OR_RETURN(const float clip, ParseSize(spec.codec, "clip", "2.5", 1000));
  EQ_ASSIGN_OR_RETURN(const float scale, ParseSize(spec.codec, "scale", "0", 1e30f));
  if (SpecValue(spec.codec, "bucket", "") == "tensor") {
    if (scale > 0) {
      return InvalidArgument(
          "codec 'terngrad': with bucket=tensor each has a scale of its own; "
          "leave scale out");
    }
    return MakeTernGradByTensor(clip, DigitCoding(spec));
  }
  EQ_ASSIGN_OR_RETURN(scheme.format.bucket,
                      ParseBucketKey(spec.codec, 2048, ~uint32_t{0}, true, ", or tensor"));
  scheme.format.coding = DigitCoding(spec);
  if (scale > 0 && !SpecValue(spec.codec, "clip", "").empty()) {
    return InvalidArgument("codec 'terngrad': scale is a clip of its own; give no other");
  }
  scheme.format.codec = CodecId::kTernary;
  scheme.format.radix = 3;
  EQ_RETURN_IF_ERROR(FillTable({}, &scheme.format));
  scheme.spec =
      "terngrad:" + (scale > 0 ? "scale=" + NumberText(scale) : "clip=" + NumberText(clip)) +
      ",bucket=" + std::to_string(scheme.format.bucket) +
      (scheme.format.coding == IndexCoding::kRans ? "|rans" : "");
  scheme.quantiser = std::make_shared<TernGrad>(clip, scale);
  if (clip == 0 && scale == 0) {
    scheme.codec_class = CodecClass::kUnbiased;
    // Variance s |v|_1 - |v|_2^2 with s = max |v|; the worst v has one coordinate of s and the
    // others of s / (1 + sqrt d).
    scheme.bound = [](double d) { return (std::sqrt(d) - 1) / 2 * (1 + 0x1p-20) + 0x1p-40; };
  }
  scheme.shared_scale = std::make_shared<SharedScale>(scheme);
  return MakeBucketCodec(std::move(scheme));
}

}  // namespace

const CodecFamily& TernGradFamily() {
  static const CodecFamily family{
      CodecId::kTernary,
      {"terngrad",
       "terngrad:clip=2.5,bucket=2048",
       CodecClass::kBiased,
       "TernGrad: -1, 0 or 1 times a scale, after clipping; unbiased with clip=0",
       {{"clip", "2.5", "standard deviations at which values are cut off; 0: none"},
        {"scale", "0", "the scale that all workers share, instead; 0: each bucket its own"},
        {"bucket", "2048",
         "coordinates that share a scale; 0: the whole message; tensor: each tensor, as "
         "published"}},
       {"rans"}},
      {"terngrad", "terngrad:clip=0", "terngrad:clip=0,bucket=33",
       "terngrad:clip=0,bucket=0|rans", "terngrad:bucket=40000", "terngrad:clip=1|rans",
       "terngrad:scale=0.5,bucket=100", "terngrad:bucket=tensor",
       "terngrad:clip=0,bucket=tensor|rans"},
      MakeTernGrad,
      DecodeBucketCodes};
  return family;
}

}  // namespace elastiquant
