// DGC, Deep Gradient Compression (Lin et al., ICLR 2018), as the field uses it: top-k under the
// memory of |dgc, keeping more coordinates in the first epochs ("warm-up").
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/codec_decorator.h"
#include "elastiquant/codec/error_feedback.h"
#include "elastiquant/codec/sparse/sparse_codec.h"

namespace elastiquant {
namespace {

using CodecResult = Result<std::shared_ptr<const Codec>>;

// Section 3.3 of the paper: sparsities of 75, 93.75, 98.4375 and 99.6 %, and from then on 99.9.
constexpr const char* kWarmUp = "0.25/0.0625/0.015625/0.004";

Result<std::vector<double>> ParseWarmUp(const SpecPart& part) {
  std::string_view rest = SpecValue(part, "warmup", kWarmUp);
  std::vector<double> ratios;
  if (rest == "no") return ratios;
  const Status bad =
      BadKey(part, "warmup", rest, "no, or the ratios of the first epochs, such as 0.25/0.05");
  while (true) {
    const size_t end = rest.find('/');
    double ratio = 0;
    if (!ParseNumber(rest.substr(0, end), &ratio) || !(ratio > 0) || ratio > 1) return bad;
    ratios.push_back(ratio);
    if (end == std::string_view::npos) return ratios;
    rest = rest.substr(end + 1);
  }
}

// Its parts do all the work; it knows their names and the epochs.
class DgcCodec : public CodecDecorator {
 public:
  DgcCodec(std::shared_ptr<const Codec> parts, std::string spec,
           std::vector<std::shared_ptr<const Codec>> warm_up)
      : CodecDecorator(std::move(parts)),
        spec_(std::move(spec)),
        warm_up_(std::move(warm_up)) {}

  std::string spec() const override { return spec_; }
  const Remembering* remembering() const override { return inner().remembering(); }
  std::shared_ptr<const Codec> ForEpoch(int epoch) const override {
    const auto e = static_cast<size_t>(std::max(epoch, 0));
    return e < warm_up_.size() ? warm_up_[e] : nullptr;
  }

 private:
  const std::string spec_;
  const std::vector<std::shared_ptr<const Codec>> warm_up_;
};

constexpr const char* kTopKKeys[] = {"ratio", "bits", "method"};
constexpr const char* kMemoryKeys[] = {"momentum", "nesterov", "clip"};
constexpr const char* kRatio = "0.001";

// topk:...|dgc:..., with the keys that `part` gives, but this ratio.
CodecResult MakeParts(const SpecPart& part, std::string_view ratio) {
  Spec topk;
  topk.codec = {part.name, {}};
  for (const char* key : kTopKKeys) {
    const std::string_view fallback = key == std::string_view("method") ? "sampled" : "16";
    const std::string_view value = SpecValue(part, key, fallback);
    topk.codec.pairs.emplace_back(key, key == std::string_view("ratio") ? ratio : value);
  }
  SpecPart memory{part.name, {}};
  for (const char* key : kMemoryKeys) {
    const std::string_view value = SpecValue(part, key, "");
    if (!value.empty()) memory.pairs.emplace_back(key, value);
  }
  EQ_ASSIGN_OR_RETURN(auto inner, TopKFamily().make(topk));
  return DgcModifier().wrap(std::move(inner), memory);
}

// The parts' canonical keys and values under one name.
std::string SpecOf(const Codec& parts, std::string_view warm_up) {
  const Spec spec = *ParseSpec(parts.spec());
  std::string text = "dgc:";
  for (const SpecPart& part : {spec.codec, spec.modifiers[0]}) {
    for (const auto& [key, value] : part.pairs) {
      text.append(key).append("=").append(value).append(",");
    }
  }
  return text.append("warmup=").append(warm_up);
}

CodecResult MakeDgc(const Spec& spec) {
  const std::string_view ratio_text = SpecValue(spec.codec, "ratio", kRatio);
  EQ_ASSIGN_OR_RETURN(auto parts, MakeParts(spec.codec, ratio_text));
  EQ_ASSIGN_OR_RETURN(const auto ratios, ParseWarmUp(spec.codec));
  double ratio = 0;
  ParseNumber(ratio_text, &ratio);
  std::vector<std::shared_ptr<const Codec>> epochs;
  std::string warm_up;
  for (const double first : ratios) {
    warm_up += (warm_up.empty() ? "" : "/") + NumberText(static_cast<float>(first));
    const std::string text = NumberText(static_cast<float>(std::max(first, ratio)));
    EQ_ASSIGN_OR_RETURN(auto of_epoch, MakeParts(spec.codec, text));
    std::string name = SpecOf(*of_epoch, "no");
    epochs.push_back(std::make_shared<DgcCodec>(std::move(of_epoch), std::move(name),
                                                std::vector<std::shared_ptr<const Codec>>()));
  }
  std::string name = SpecOf(*parts, warm_up.empty() ? "no" : warm_up);
  return {std::make_shared<DgcCodec>(std::move(parts), std::move(name), std::move(epochs))};
}

}  // namespace

const CodecFamily& DgcFamily() {
  static const CodecFamily family = [] {
    std::vector<CodecParameter> parameters{
        {"ratio", kRatio, "above 0, up to 1: kept of all coordinates; at least one is"},
        SparseBitsParameter(/*exact=*/true),
        {"method", "sampled", "exact, or sampled: 0.8 to 1.3 times as many"}};
    for (const CodecParameter& parameter : DgcModifier().parameters) {
      parameters.push_back(parameter);
    }
    parameters.push_back(
        {"warmup", kWarmUp, "ratios of the first epochs, where they are larger; or no"});
    return CodecFamily{CodecId::kSparse,
                       {"dgc",
                        "dgc:ratio=0.001",
                        CodecClass::kContractive,
                        "Deep Gradient Compression: top-k, |dgc's memory, and a warm-up",
                        parameters,
                        {}},
                       {"dgc:ratio=0.001", "dgc:ratio=0.05,bits=8,method=exact,warmup=no"},
                       MakeDgc,
                       DecodeSparse};
  }();
  return family;
}

}  // namespace elastiquant
