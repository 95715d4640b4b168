// Subtractive dither of the whole message with one step, coded with rANS under a density that
// the scale of each block of 128 and the dither itself select. Reverse water-filling: quiet
// blocks cost next to nothing, and every coordinate has the variance step^2 / 12 exactly.
#include <memory>
#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/dither/dither_code.h"
#include "elastiquant/codec/rate.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {
namespace {

class DitherCodec : public Codec {
 public:
  explicit DitherCodec(const DitherSpec& spec) : spec_(spec) {}

  const DitherSpec& parameters() const { return spec_; }
  std::string spec() const override {
    std::string text = spec_.nmse > 0 ? "dither:nmse=" + NumberText(spec_.nmse)
                                      : "dither:bits=" + NumberText(spec_.bits);
    if (spec_.density) {
      text += *spec_.density == DitherDensity::kGauss ? ",model=gauss" : ",model=laplace";
    }
    return text;
  }
  CodecClass codec_class() const override { return CodecClass::kUnbiased; }
  std::optional<double> NmseBound(size_t) const override {
    if (spec_.nmse > 0) return spec_.nmse;
    return kMostDitherError * 1.01;  // float means of blocks, rounded
  }
  size_t MaxFrameBytes(size_t n) const override { return MaxDitherFrameBytes(n); }
  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    EQ_RETURN_IF_ERROR(
        CheckEncodeSizes(values.size(), MaxFrameBytes(values.size()), frame.size()));
    return EncodeDither(spec_, values, key, work, frame);
  }

 private:
  const DitherSpec spec_;
};

constexpr double kLeastBits = 0.5;
constexpr double kMostBits = 8;

Result<double> ParseWithin(const SpecPart& part, std::string_view key,
                           std::string_view fallback, double least, double most) {
  const std::string_view text = SpecValue(part, key, fallback);
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && stop == text.data() + text.size() && value >= least &&
      value <= most) {
    return value;
  }
  return InvalidArgument("codec 'dither': " + std::string(key) + "=" + std::string(text) +
                         " is not valid; use a number from " + NumberText(least) + " to " +
                         NumberText(most));
}

Result<std::shared_ptr<const Codec>> MakeDither(const Spec& spec) {
  DitherSpec parsed;
  const bool has_bits = !SpecValue(spec.codec, "bits", "").empty();
  const bool has_nmse = !SpecValue(spec.codec, "nmse", "").empty();
  if (has_bits && has_nmse) {
    return InvalidArgument(
        "codec 'dither': bits and nmse exclude each other; the one follows from the other");
  }
  if (has_nmse) {
    EQ_ASSIGN_OR_RETURN(parsed.nmse, ParseWithin(spec.codec, "nmse", "", 1e-6, 10));
    parsed.bits = 0;
  } else {
    EQ_ASSIGN_OR_RETURN(parsed.bits,
                        ParseWithin(spec.codec, "bits", "2", kLeastBits, kMostBits));
  }
  const std::string_view model = SpecValue(spec.codec, "model", "auto");
  if (model == "laplace") {
    parsed.density = DitherDensity::kLaplace;
  } else if (model == "gauss") {
    parsed.density = DitherDensity::kGauss;
  } else if (model != "auto") {
    return InvalidArgument("codec 'dither': model=" + std::string(model) +
                           " is not known; valid: auto, laplace, gauss");
  }
  return {std::make_shared<DitherCodec>(parsed)};
}

// The mean over the coordinates; those of blocks that are zero have none.
Result<double> VarianceOf(const FrameView& frame) {
  EQ_ASSIGN_OR_RETURN(const DitherFormat format, ReadDitherParameters(frame));
  if (format.dithered == 0) return 0.0;
  const double step = format.step;
  return step * step / 12 * format.dithered / static_cast<double>(frame.elements);
}

}  // namespace

const CodecFamily& DitherFamily() {
  static const CodecFamily family{
      CodecId::kDither,
      {"dither",
       "dither:bits=2",
       CodecClass::kUnbiased,
       "one step for all, subtractive dither, entropy-coded by the scale of each block",
       {{"bits", "2", "0.5 to 8: bits a coordinate, any number; not together with nmse"},
        {"nmse", "", "1e-6 to 10: squared error over the squared norm, exactly"},
        {"model", "auto", "laplace, gauss, or auto: what the values of a block look like"}},
       {}},
      {"dither:bits=2", "dither:bits=0.5,model=laplace", "dither:bits=4,model=gauss",
       "dither:bits=8", "dither:nmse=0.05", "dither:nmse=1e-05"},
      MakeDither,
      DecodeDither,
      VarianceOf};
  return family;
}

double RateOf(const Codec& codec) {
  const auto* dither = dynamic_cast<const DitherCodec*>(&codec);
  return dither == nullptr ? 0 : dither->parameters().bits;
}

std::shared_ptr<const Codec> AtShareOfRate(const Codec& codec, double share) {
  const double bits = RateOf(codec) * share;
  if (bits < kLeastBits || bits > kMostBits) return nullptr;
  DitherSpec spec = dynamic_cast<const DitherCodec&>(codec).parameters();
  spec.bits = bits;
  return std::make_shared<DitherCodec>(spec);
}

}  // namespace elastiquant
