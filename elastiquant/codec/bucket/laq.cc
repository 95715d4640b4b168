// LAQ's quantiser (Sun et al., "Communication-Efficient Distributed Learning via Lazily
// Aggregated Quantized Gradients", NeurIPS 2019): each value to the nearest point of a uniform
// grid over [-R, R], R being the largest magnitude. Meant for innovations, what a gradient has
// that the one sent last had not.
#include <bit>
#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/bucket/bucket_codec.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/quantize_digits.h"

namespace elastiquant {
namespace {

class Laq : public BucketQuantiser {
 public:
  explicit Laq(int top) : top_(top) {}

  bool Measure(std::span<const float> bucket, std::span<uint8_t>,
               std::span<float> side) const override {
    const uint32_t largest = AbsMaxBits(bucket.data(), bucket.size());
    side[0] = std::bit_cast<float>(largest);
    return largest < kNonFiniteBits;
  }
  void Quantise(std::span<const float> values, std::span<const float> side, RandomRun,
                uint8_t* digits) const override {
    if (side[0] == 0) {
      std::fill_n(digits, values.size(), uint8_t{0});
      return;
    }
    QuantizeNearest(values.data(), values.size(), side[0], top_, digits);
  }

 private:
  const int top_;
};

Result<std::shared_ptr<const Codec>> MakeLaq(const Spec& spec) {
  const std::string_view text = SpecValue(spec.codec, "bits", "4");
  int bits = 0;
  if (!ParseNumber(text, &bits) || bits < 2 || bits > 8) {
    return BadKey(spec.codec, "bits", text, "2 to 8");
  }
  BucketScheme scheme;
  scheme.format.codec = CodecId::kInnovation;
  scheme.format.radix = 1 << bits;
  scheme.format.coding = DigitCoding(spec);
  EQ_ASSIGN_OR_RETURN(scheme.format.bucket,
                      ParseBucketKey(spec.codec, 128, ~uint32_t{0}, true));
  EQ_RETURN_IF_ERROR(FillTable({}, &scheme.format));
  const int top = scheme.format.radix - 1;
  scheme.quantiser = std::make_shared<Laq>(top);
  // The largest value is on the grid; each other is off by at most R / top, as zeros are.
  const double grid = (1 + 0x1p-12) / (static_cast<double>(top) * top);
  scheme.bound = [grid](double d) { return (d - 1) * grid + 0x1p-40; };
  const double bucket = scheme.format.bucket;
  if (bucket > 0 && scheme.bound(bucket) < 1) scheme.codec_class = CodecClass::kContractive;
  scheme.spec = "laq:bits=" + std::to_string(bits) +
                ",bucket=" + std::to_string(scheme.format.bucket) +
                (spec.modifiers.empty() ? "" : "|rans");
  return MakeBucketCodec(std::move(scheme));
}

}  // namespace

const CodecFamily& LaqFamily() {
  static const CodecFamily family{
      CodecId::kInnovation,
      {"laq",
       "laq:bits=4,bucket=128",
       CodecClass::kContractive,
       "LAQ's quantiser: to the nearest point of a uniform grid over each bucket's range",
       {{"bits", "4", "2 to 8: 2^bits points"},
        {"bucket", "128",
         "coordinates that share a range; 0: the whole message. Contractive "
         "below (2^bits - 1)^2"}},
       {"rans"}},
      {"laq", "laq:bits=3,bucket=0", "laq:bits=8,bucket=2048|rans", "laq:bits=2,bucket=7"},
      MakeLaq,
      DecodeBucketCodes};
  return family;
}

}  // namespace elastiquant
