#include "elastiquant/codec/registry.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "elastiquant/base/contains.h"
#include "elastiquant/codec/untrusted.h"

namespace elastiquant {
namespace {

// "a, b, c", or "none".
template <typename Range, typename Name>
std::string Join(const Range& range, Name name) {
  std::string text;
  for (const auto& item : range) text += (text.empty() ? "" : ", ") + std::string(name(item));
  return text.empty() ? "none" : text;
}

Status Unknown(std::string_view owner, std::string_view what, std::string_view name,
               const std::string& valid) {
  return InvalidArgument(std::string(owner) + " has no " + std::string(what) + " '" +
                         std::string(name) + "'; valid: " + valid);
}

// Every key must be declared, so that a typing error never passes for a default.
Status CheckKeys(std::string_view owner, const SpecPart& part,
                 const std::vector<CodecParameter>& parameters) {
  for (const auto& [key, value] : part.pairs) {
    const auto same = [&k = key](const CodecParameter& p) { return p.name == k; };
    if (std::ranges::any_of(parameters, same)) continue;
    return Unknown(owner, "key", key, Join(parameters, [](const auto& p) { return p.name; }));
  }
  return Status::Ok();
}

const CodecModifier* FindModifier(std::string_view name) {
  for (const CodecModifier* modifier : CodecModifiers()) {
    if (modifier->name == name) return modifier;
  }
  return nullptr;
}

Status UnknownModifier(const CodecInfo& info, std::string_view name) {
  std::vector<std::string> valid = info.modifiers;
  for (const CodecModifier* modifier : CodecModifiers()) valid.push_back(modifier->name);
  return Unknown("codec '" + info.name + "'", "modifier", name, Join(valid, std::identity()));
}

// Takes the modifiers that go with any codec off the end of `spec`; what stays is the family's.
Result<std::vector<SpecPart>> TakeModifiers(const CodecInfo& info, Spec* spec) {
  const auto is_own = [&](const SpecPart& m) { return Contains(info.modifiers, m.name); };
  const auto general = std::ranges::find_if_not(spec->modifiers, is_own);
  std::vector<SpecPart> taken(general, spec->modifiers.end());
  spec->modifiers.erase(general, spec->modifiers.end());
  for (const SpecPart& part : taken) {
    if (is_own(part)) {
      return InvalidArgument("modifier '" + part.name + "' is one of codec '" + info.name +
                             "' itself: give it before '" + taken.front().name + "'");
    }
    if (FindModifier(part.name) == nullptr) return UnknownModifier(info, part.name);
  }
  return taken;
}

Result<std::shared_ptr<const Codec>> MakeFamilysCodec(const CodecFamily& family,
                                                      const Spec& spec) {
  const std::string owner = "codec '" + family.info.name + "'";
  EQ_RETURN_IF_ERROR(CheckKeys(owner, spec.codec, family.info.parameters));
  for (const SpecPart& modifier : spec.modifiers) {
    if (modifier.pairs.empty()) continue;
    return InvalidArgument("modifier '" + modifier.name + "' of " + owner + " takes no keys");
  }
  return family.make(spec);
}

// A parsed frame, and the family or the modifier that made it.
struct KnownFrame {
  FrameView view;
  const std::string& codec;
  Status (*decode)(const FrameView& frame, const DecodeSink& sink, Workspace& work);
  Result<double> (*variance)(const FrameView& frame);
};
Result<KnownFrame> ParseKnownFrame(std::span<const uint8_t> frame) {
  EQ_ASSIGN_OR_RETURN(const FrameView view, ParseFrame(frame));
  for (const CodecFamily* family : CodecFamilies()) {
    if (family->id != view.codec) continue;
    return KnownFrame{view, family->info.name, family->decode, family->variance};
  }
  for (const CodecModifier* modifier : CodecModifiers()) {
    if (modifier->decode == nullptr || modifier->id != view.codec) continue;
    return KnownFrame{view, modifier->name, modifier->decode, nullptr};
  }
  return Unsupported("frame codec check failed: this build has no codec number " +
                     std::to_string(static_cast<int>(view.codec)));
}

Status Decode(std::span<const uint8_t> frame, const DecodeSink& sink, Workspace& work) {
  EQ_ASSIGN_OR_RETURN(const KnownFrame known, ParseKnownFrame(frame));
  if (known.view.elements != sink.size()) {
    return InvalidArgument("the frame has " + std::to_string(known.view.elements) +
                           " values, the output has room for " + std::to_string(sink.size()) +
                           "; they must be equal");
  }
  return known.decode(known.view, sink, work);
}

}  // namespace

std::span<const CodecFamily* const> CodecFamilies() {
  static const std::array families{
      // One line a file.
      // clang-format off
      &Fp32Family(), &Fp16Family(), &Bf16Family(),
      &ElasticFamily(), &ElastiQuantFamily(),
      &DitherFamily(),
      &QsgdFamily(), &QsgdvFamily(), &NuqsgdFamily(),
      &TernGradFamily(),
      &SignSgdFamily(), &EfSignFamily(),
      &OneBitFamily(), &BinGradBFamily(), &BinGradPbFamily(),
      &OrqFamily(), &QuiverFamily(),
      &ZerolessFamily(), &AmqFamily(), &AlqFamily(), &LaqFamily(),
      &NaturalFamily(),
      &EdenFamily(),
      &PowerSgdFamily(),
      &TopKFamily(), &ThresholdFamily(),
      &ChunkTopKFamily(),
      &AtomoSvdFamily(),
      &RandomKFamily(),
      &AtomoFamily(),
      &DgcFamily(),
      // clang-format on
  };
  return families;
}

std::span<const CodecModifier* const> CodecModifiers() {
  static const std::array modifiers{&RotateModifier(), &ErrorFeedbackModifier(),
                                    &DgcModifier()};
  return modifiers;
}

std::string_view CodecClassName(CodecClass c) {
  switch (c) {
    case CodecClass::kLossless:
      return "lossless";
    case CodecClass::kUnbiased:
      return "unbiased";
    case CodecClass::kContractive:
      return "contractive";
    case CodecClass::kBiased:
      return "biased";
  }
  return "unknown";
}

std::string_view ExchangeName(Exchange e) {
  switch (e) {
    case Exchange::kTwoPhase:
      return "two-phase";
    case Exchange::kAllGather:
      return "all-gather";
    case Exchange::kSparseScatter:
      return "sparse-scatter";
    case Exchange::kSparse:
      return "sparse";
    case Exchange::kFactors:
      return "factors";
    case Exchange::kIntegerSum:
      return "integer-sum";
  }
  return "unknown";
}

std::shared_ptr<const Codec> Codec::ForEpoch(int) const { return nullptr; }

std::shared_ptr<const Codec> CodecForEpoch(const std::shared_ptr<const Codec>& codec,
                                           int epoch) {
  std::shared_ptr<const Codec> of_epoch = codec->ForEpoch(epoch);
  return of_epoch ? of_epoch : codec;
}

Result<FactorPlan> Codec::Factors(size_t) const {
  return Unsupported("codec '" + spec() + "' has no factors");
}

Result<std::shared_ptr<const Codec>> Codec::WithShapes(std::span<const TensorShape>) const {
  return {std::shared_ptr<const Codec>()};
}

Result<std::shared_ptr<const Codec>> CodecForShapes(std::shared_ptr<const Codec> codec,
                                                    std::span<const TensorShape> shapes) {
  EQ_ASSIGN_OR_RETURN(auto shaped, codec->WithShapes(shapes));
  return shaped ? shaped : std::move(codec);
}

Result<std::shared_ptr<const Codec>> MakeCodec(std::string_view text) {
  EQ_ASSIGN_OR_RETURN(Spec spec, ParseSpec(text));
  const auto families = CodecFamilies();
  const auto family = std::ranges::find_if(
      families, [&](const CodecFamily* f) { return f->info.name == spec.codec.name; });
  if (family == families.end()) {
    return InvalidArgument("unknown codec '" + spec.codec.name + "'; valid: " +
                           Join(families, [](const CodecFamily* f) { return f->info.name; }));
  }
  EQ_ASSIGN_OR_RETURN(const auto modifiers, TakeModifiers((*family)->info, &spec));
  EQ_ASSIGN_OR_RETURN(auto codec, MakeFamilysCodec(**family, spec));
  for (const SpecPart& part : modifiers) {
    const CodecModifier& modifier = *FindModifier(part.name);
    EQ_RETURN_IF_ERROR(CheckKeys("modifier '" + part.name + "'", part, modifier.parameters));
    EQ_ASSIGN_OR_RETURN(codec, modifier.wrap(std::move(codec), part));
  }
  return codec;
}

const std::vector<CodecModifierInfo>& ListCodecModifiers() {
  static const std::vector<CodecModifierInfo> modifiers = [] {
    std::vector<CodecModifierInfo> list;
    for (const CodecModifier* m : CodecModifiers()) {
      list.push_back({m->name, m->summary, m->parameters});
    }
    return list;
  }();
  return modifiers;
}

const std::vector<CodecInfo>& ListCodecs() {
  static const std::vector<CodecInfo> codecs = [] {
    std::vector<CodecInfo> list;
    for (const CodecFamily* family : CodecFamilies()) list.push_back(family->info);
    return list;
  }();
  return codecs;
}

Result<FrameSummary> InspectFrame(std::span<const uint8_t> frame, size_t max_elements) {
  EQ_ASSIGN_OR_RETURN(const KnownFrame known, ParseKnownFrame(frame));
  if (known.view.elements > max_elements) {
    return OutOfRange("a frame of " + std::to_string(frame.size()) + " bytes claims " +
                      std::to_string(known.view.elements) + " values, and " +
                      std::to_string(max_elements) +
                      " are allowed: if you trust its sender, raise max_elements "
                      "(--max-elements of `elastiquant decode`)");
  }
  FrameSummary summary{known.codec, known.view.elements, frame.size(), known.view.key,
                       std::nullopt};
  if (known.variance != nullptr) {
    EQ_ASSIGN_OR_RETURN(summary.variance, known.variance(known.view));
  }
  return summary;
}

Result<FrameSummary> InspectFrame(std::span<const uint8_t> frame) {
  return InspectFrame(frame, kDefaultMaxElements);
}

Status DecodeFrame(std::span<const uint8_t> frame, Workspace& work, std::span<float> values) {
  return Decode(frame, DecodeSink(values), work);
}

Status DecodeAddFrame(std::span<const uint8_t> frame, float weight, Workspace& work,
                      std::span<float> values) {
  return Decode(frame, {values, {.add = true, .weight = weight}}, work);
}

}  // namespace elastiquant
