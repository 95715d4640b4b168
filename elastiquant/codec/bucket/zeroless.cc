// Levels without zero, -l_h ... -l_1, l_1 ... l_h = 1, relative to each bucket's norm: what the
// public code of NUQSGD, ALQ and AMQ really does (Faghri et al., "Adaptive Gradient
// Quantization for Data-Parallel SGD", NeurIPS 2020). AMQ is its exponential form, with a p
// that training adapts.
#include "elastiquant/codec/bucket/zeroless.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/bucket/bucket_codec.h"
#include "elastiquant/codec/bucket_norm.h"
#include "elastiquant/kernels/quantize_digits.h"

namespace elastiquant {
namespace {

class Zeroless : public BucketQuantiser {
 public:
  Zeroless(NormOrder norm, std::span<const float> levels) : norm_(norm) {
    FillDigitLevels(levels, &table_);
  }

  bool Measure(std::span<const float> bucket, std::span<uint8_t>,
               std::span<float> side) const override {
    side[0] = BucketNorm(norm_, bucket);
    return std::isfinite(side[0]);
  }

  void Quantise(std::span<const float> values, std::span<const float> side, RandomRun random,
                uint8_t* digits) const override {
    if (side[0] == 0) {
      std::fill_n(digits, values.size(), uint8_t{0});
      return;
    }
    const Scaler scaler = MakeScaler(side[0], 1);
    QuantizeDigits(values.data(), values.size(), random, table_, scaler.pre, scaler.mul,
                   digits);
  }

 private:
  const NormOrder norm_;
  DigitLevels table_;
};

// What the keys mean, and as which text they are printed.
struct ZerolessSpec {
  BucketFormat format;
  NormOrder norm;
  std::string levels_text, p_text, norm_text;
  int bits = 3;
};

struct ZerolessDefaults {
  std::string_view p;
  std::string_view p_of_8_bits;
  std::string_view norm;
  uint32_t bucket;
};
constexpr ZerolessDefaults kZerolessDefaults{"auto", "auto", "linf", 512};
// The least of 128 levels would be 2^-127 at p=0.5, which is no normal number.
constexpr ZerolessDefaults kAmqDefaults{"0.5", "auto", "l2", 8192};

// Equal levels have equal texts, however they were written.
std::string ListText(std::span<const float> upper) {
  std::string text;
  for (const float level : upper) text += (text.empty() ? "" : "/") + NumberText(level);
  return text;
}

Status ParseList(const SpecPart& part, std::string_view text, ZerolessSpec* parsed) {
  BucketFormat* const format = &parsed->format;
  std::vector<float> upper;
  const size_t half = static_cast<size_t>(format->radix) / 2;
  const std::string valid = "exp, uniform, or a list of " + std::to_string(half) +
                            " levels above 0 that ends with 1, such as 0.1/0.3/0.6/1";
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    if (!ParseNumber(text.substr(begin, end - begin), &upper.emplace_back())) {
      return BadKey(part, "levels", text, valid);
    }
    begin = end + 1;
  }
  if (upper.size() != half) return BadKey(part, "levels", text, valid);
  format->family = ZerolessLevels::kListed;
  const Status filled = FillTable(upper, format);
  if (!filled.ok()) return BadKey(part, "levels", text, valid + ": " + filled.message());
  parsed->levels_text = ListText(upper);
  return Status::Ok();
}

Status ParseExponential(const SpecPart& part, std::string_view text, ZerolessSpec* parsed) {
  BucketFormat* const format = &parsed->format;
  const size_t half = static_cast<size_t>(format->radix) / 2;
  if (text == "auto") {
    format->p = ZerolessRatio(half, format->bucket);
  } else if (!ParseNumber(text, &format->p) || !(format->p > 0 && format->p < 1)) {
    return BadKey(part, "p", text, "auto or a number between 0 and 1");
  }
  parsed->p_text = text == "auto" ? "auto" : NumberText(format->p);
  const Status filled = FillTable({}, format);
  return filled.ok() ? filled : BadKey(part, "p", text, "another p: " + filled.message());
}

Result<ZerolessSpec> ParseZeroless(const Spec& spec, const ZerolessDefaults& defaults) {
  ZerolessSpec parsed;
  const SpecPart& part = spec.codec;
  const std::string_view bits = SpecValue(part, "bits", "3");
  if (!ParseNumber(bits, &parsed.bits) || parsed.bits < 2 || parsed.bits > 8) {
    return BadKey(part, "bits", bits, "2 to 8");
  }
  parsed.norm_text = SpecValue(part, "norm", defaults.norm);
  if (parsed.norm_text != "l2" && parsed.norm_text != "linf") {
    return BadKey(part, "norm", parsed.norm_text, "l2 or linf");
  }
  parsed.norm.kind = parsed.norm_text == "l2" ? NormKind::kL2 : NormKind::kLinf;
  BucketFormat& format = parsed.format;
  format.codec = CodecId::kZeroless;
  format.radix = 1 << parsed.bits;
  format.coding = DigitCoding(spec);
  EQ_ASSIGN_OR_RETURN(format.bucket,
                      ParseBucketKey(part, defaults.bucket, ~uint32_t{0}, false));
  parsed.levels_text = SpecValue(part, "levels", "exp");
  if (parsed.levels_text == "exp") {
    const std::string_view usual = parsed.bits == 8 ? defaults.p_of_8_bits : defaults.p;
    EQ_RETURN_IF_ERROR(ParseExponential(part, SpecValue(part, "p", usual), &parsed));
    return parsed;
  }
  if (!SpecValue(part, "p", "").empty()) {
    return InvalidArgument("codec '" + part.name + "': p goes with levels=exp only");
  }
  if (parsed.levels_text == "uniform") {
    format.family = ZerolessLevels::kUniform;
    EQ_RETURN_IF_ERROR(FillTable({}, &format));
  } else {
    EQ_RETURN_IF_ERROR(ParseList(part, SpecValue(part, "levels", ""), &parsed));
  }
  return parsed;
}

std::shared_ptr<const Codec> MakeScheme(const ZerolessSpec& parsed, const std::string& text) {
  BucketScheme scheme;
  const BucketFormat& format = scheme.format = parsed.format;
  const std::span<const float> levels(format.table.data(), static_cast<size_t>(format.radix));
  const auto upper = levels.subspan(levels.size() / 2);
  double ratio = 1;
  for (size_t j = 1; j < upper.size(); ++j) {
    ratio = std::max(ratio, static_cast<double>(upper[j]) / static_cast<double>(upper[j - 1]));
  }
  const double smallest = upper[0];
  scheme.bound = [=](double d) { return ZerolessBound(smallest, ratio, d) * (1 + 0x1p-20); };
  scheme.codec_class = CodecClass::kUnbiased;
  scheme.quantiser = std::make_shared<Zeroless>(parsed.norm, levels);
  scheme.spec = text + ",norm=" + parsed.norm_text +
                ",bucket=" + std::to_string(format.bucket) +
                (format.coding == IndexCoding::kRans ? "|rans" : "");
  return MakeBucketCodec(std::move(scheme));
}

Result<std::shared_ptr<const Codec>> MakeZeroless(const Spec& spec) {
  EQ_ASSIGN_OR_RETURN(const ZerolessSpec parsed, ParseZeroless(spec, kZerolessDefaults));
  const bool exponential = parsed.format.family == ZerolessLevels::kExponential;
  return MakeScheme(parsed, "zeroless:bits=" + std::to_string(parsed.bits) +
                                ",levels=" + parsed.levels_text +
                                (exponential ? ",p=" + parsed.p_text : ""));
}

Result<std::shared_ptr<const Codec>> MakeAmq(const Spec& spec) {
  EQ_ASSIGN_OR_RETURN(const ZerolessSpec parsed, ParseZeroless(spec, kAmqDefaults));
  return MakeScheme(parsed, "amq:bits=" + std::to_string(parsed.bits) + ",p=" + parsed.p_text);
}

}  // namespace

double ZerolessBound(double smallest, double largest_ratio, double d) {
  return (largest_ratio - 1) * (largest_ratio - 1) / (4 * largest_ratio) +
         d * smallest * smallest;
}

float ZerolessRatio(size_t half, double d) {
  int best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (int thousandths = 1; thousandths < 1000; ++thousandths) {
    const double p = thousandths / 1000.0;
    double smallest = 1;
    for (size_t j = 1; j < half; ++j) smallest *= p;
    const double bound = ZerolessBound(smallest, 1 / p, d);
    if (bound >= least) continue;
    least = bound;
    best = thousandths;
  }
  return static_cast<float>(best) / 1000;
}

const CodecFamily& ZerolessFamily() {
  static const CodecFamily family{
      CodecId::kZeroless,
      {"zeroless",
       "zeroless:bits=3,levels=exp,p=auto,norm=linf,bucket=512",
       CodecClass::kUnbiased,
       "levels without zero: less error on dense gradients at few bits",
       {{"bits", "3", "2 to 8: 2^bits levels"},
        {"levels", "exp", "exp, uniform, or a list of 2^(bits-1) that ends with 1"},
        {"p", "auto", "ratio of neighbouring exp levels, 0 to 1; auto: least variance bound"},
        {"norm", "linf", "l2 or linf"},
        {"bucket", "512", "1 or more: coordinates that share a norm"}},
       {"rans"}},
      {"zeroless", "zeroless:bits=2,p=0.5,norm=l2,bucket=33", "zeroless:bits=8,levels=uniform",
       "zeroless:levels=0.1/0.3/0.6/1,bucket=100", "zeroless:bits=4,bucket=40000|rans",
       "zeroless:bits=5,levels=uniform,norm=l2,bucket=100|rans"},
      MakeZeroless,
      DecodeBucketCodes};
  return family;
}

const CodecFamily& AmqFamily() {
  static const CodecFamily family{
      CodecId::kZeroless,
      {"amq",
       "amq:bits=3,p=0.5,norm=l2,bucket=8192",
       CodecClass::kUnbiased,
       "AMQ: levels +-1, +-p, +-p^2, ..., whose p is adapted to the gradients",
       {{"bits", "3", "2 to 8: 2^bits levels"},
        {"p", "0.5",
         "ratio of neighbouring levels, 0 to 1; auto, the default at 8 bits: least variance "
         "bound"},
        {"norm", "l2", "l2 or linf"},
        {"bucket", "8192", "1 or more: coordinates that share a norm"}},
       {"rans"}},
      {"amq", "amq:bits=4,p=0.7,bucket=512|rans"},
      MakeAmq,
      DecodeBucketCodes};
  return family;
}

}  // namespace elastiquant
