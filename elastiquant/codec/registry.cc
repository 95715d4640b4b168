#include "elastiquant/codec/registry.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>

namespace elastiquant {
namespace {

// "a, b, c", or "none".
template <typename Range, typename Name>
std::string Join(const Range& range, Name name) {
  std::string text;
  for (const auto& item : range) text += (text.empty() ? "" : ", ") + std::string(name(item));
  return text.empty() ? "none" : text;
}

Status Unknown(std::string_view what, std::string_view name, const CodecInfo& owner,
               const std::string& valid) {
  return InvalidArgument("codec '" + owner.name + "' has no " + std::string(what) + " '" +
                         std::string(name) + "'; valid: " + valid);
}

// Every key and modifier must be one that the family declares, so that a typing error never
// passes for a default.
Status CheckDeclared(const Spec& spec, const CodecInfo& info) {
  for (const auto& [key, value] : spec.codec.pairs) {
    const auto same = [&k = key](const CodecParameter& p) { return p.name == k; };
    if (std::ranges::none_of(info.parameters, same)) {
      return Unknown("key", key, info,
                     Join(info.parameters, [](const auto& p) { return p.name; }));
    }
  }
  for (const SpecPart& modifier : spec.modifiers) {
    if (std::ranges::find(info.modifiers, modifier.name) == info.modifiers.end()) {
      return Unknown("modifier", modifier.name, info, Join(info.modifiers, std::identity()));
    }
    if (!modifier.pairs.empty()) {
      return InvalidArgument("modifier '" + modifier.name + "' of codec '" + info.name +
                             "' takes no keys");
    }
  }
  return Status::Ok();
}

// A parsed frame and the family that made it.
struct KnownFrame {
  FrameView view;
  const CodecFamily* family;
};
Result<KnownFrame> ParseKnownFrame(std::span<const uint8_t> frame) {
  EQ_ASSIGN_OR_RETURN(const FrameView view, ParseFrame(frame));
  for (const CodecFamily* family : CodecFamilies()) {
    if (family->id == view.codec) return KnownFrame{view, family};
  }
  return Unsupported("frame codec check failed: this build has no codec number " +
                     std::to_string(static_cast<int>(view.codec)));
}

Status Decode(std::span<const uint8_t> frame, const DecodeSink& sink, Workspace& work) {
  EQ_ASSIGN_OR_RETURN(const KnownFrame known, ParseKnownFrame(frame));
  if (known.view.elements != sink.out.size()) {
    return InvalidArgument("the frame has " + std::to_string(known.view.elements) +
                           " values, the output has room for " +
                           std::to_string(sink.out.size()) + "; they must be equal");
  }
  return known.family->decode(known.view, sink, work);
}

}  // namespace

std::span<const CodecFamily* const> CodecFamilies() {
  static const std::array families{
      // One line a file.
      &Fp32Family(),    &Fp16Family(),  &Bf16Family(),  //
      &ElasticFamily(),                                 //
      &QsgdFamily(),    &QsgdvFamily(), &NuqsgdFamily(),
  };
  return families;
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

Result<std::shared_ptr<const Codec>> MakeCodec(std::string_view text) {
  EQ_ASSIGN_OR_RETURN(const Spec spec, ParseSpec(text));
  for (const CodecFamily* family : CodecFamilies()) {
    if (family->info.name != spec.codec.name) continue;
    EQ_RETURN_IF_ERROR(CheckDeclared(spec, family->info));
    return family->make(spec);
  }
  return InvalidArgument(
      "unknown codec '" + spec.codec.name +
      "'; valid: " + Join(CodecFamilies(), [](const CodecFamily* f) { return f->info.name; }));
}

const std::vector<CodecInfo>& ListCodecs() {
  static const std::vector<CodecInfo> codecs = [] {
    std::vector<CodecInfo> list;
    for (const CodecFamily* family : CodecFamilies()) list.push_back(family->info);
    return list;
  }();
  return codecs;
}

Result<FrameSummary> InspectFrame(std::span<const uint8_t> frame) {
  EQ_ASSIGN_OR_RETURN(const KnownFrame known, ParseKnownFrame(frame));
  return FrameSummary{known.family->info.name, known.view.elements, frame.size(),
                      known.view.key};
}

Status DecodeFrame(std::span<const uint8_t> frame, Workspace& work, std::span<float> values) {
  return Decode(frame, {.out = values}, work);
}

Status DecodeAddFrame(std::span<const uint8_t> frame, float weight, Workspace& work,
                      std::span<float> values) {
  return Decode(frame, {.out = values, .add = true, .weight = weight}, work);
}

}  // namespace elastiquant
