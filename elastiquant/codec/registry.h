// What a scheme gives to be registered. registry.cc lists the families; nothing else does.
#pragma once

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/spec.h"
#include "elastiquant/kernels/dequantize.h"

namespace elastiquant {

// Where a decoder puts its values, out[i] = Q[i] or out[i] += weight * Q[i], and the only way
// to them. Bytes may be hostile, but what they decode to is an error or finite: a decoder gets
// at the output only by saying how large the values are that it will put there, or with a
// function that looks at each of them. Neither takes another pass over the values.
class DecodeSink {
 public:
  explicit DecodeSink(std::span<float> out) : out_(out) {}
  DecodeSink(std::span<float> out, Accumulate how) : out_(out), how_(how) {}

  size_t size() const { return out_.size(); }  // the frame's element count
  Accumulate how() const { return how_; }
  // The same for the first `count` coordinates.
  DecodeSink First(size_t count) const { return {out_.first(count), how_}; }

  // Where coordinate `begin` is, for it and others behind it whose values are at most `largest`
  // in magnitude. Null if that is NaN or infinite: then the frame must be refused.
  [[nodiscard]] float* Room(size_t begin, float largest) const {
    return std::isfinite(largest) ? out_.data() + begin : nullptr;
  }
  // write(out), with coordinate `begin` at `out`, puts values there and says whether all are
  // finite, as does this. If not the frame must be refused.
  template <typename Write>
  [[nodiscard]] bool PutChecked(size_t begin, const Write& write) const {
    return write(out_.data() + begin);
  }
  // Where values will be put soon: to be fetched into caches, not to be read.
  const float* Soon(size_t begin) const { return out_.data() + begin; }

 private:
  std::span<float> out_;
  Accumulate how_;
};

// One scheme by its name. Families of one id share wire format and decoder.
struct CodecFamily {
  CodecId id;
  CodecInfo info;
  // Specs that between them take every path of the scheme; the conformance suite runs each.
  std::vector<std::string> variants;
  Result<std::shared_ptr<const Codec>> (*make)(const Spec& spec);
  // Checks everything inside parameters and payload before it trusts it.
  Status (*decode)(const FrameView& frame, const DecodeSink& sink, Workspace& work);
  // FrameSummary::variance, for schemes whose frames tell it.
  Result<double> (*variance)(const FrameView& frame) = nullptr;
};

// Something that wraps any codec: `spec|name`. Modifiers apply from left to right.
struct CodecModifier {
  std::string name;
  std::string summary;
  std::vector<CodecParameter> parameters;
  // `part` has only declared keys. The error says why `inner` cannot be wrapped.
  Result<std::shared_ptr<const Codec>> (*wrap)(std::shared_ptr<const Codec> inner,
                                               const SpecPart& part);
  // Of those that have frames of their own: specs for the conformance suite, format, decoder.
  std::vector<std::string> variants = {};
  CodecId id = {};
  Status (*decode)(const FrameView& frame, const DecodeSink& sink, Workspace& work) = nullptr;
};

std::span<const CodecModifier* const> CodecModifiers();  // in the order to show them
std::span<const CodecFamily* const> CodecFamilies();     // in the order to show them

// clang-format off
const CodecFamily& Fp32Family();  // raw.cc
const CodecFamily& Fp16Family();  // raw.cc
const CodecFamily& Bf16Family();  // raw.cc
const CodecFamily& ElasticFamily();  // elastic/elastic.cc
const CodecFamily& DitherFamily();  // dither/dither.cc
const CodecFamily& QsgdFamily();  // elastic/qsgd.cc
const CodecFamily& QsgdvFamily();  // elastic/qsgd.cc
const CodecFamily& NuqsgdFamily();  // elastic/qsgd.cc
const CodecFamily& ElastiQuantFamily();  // elastic/qsgd.cc
const CodecFamily& TernGradFamily();  // bucket/terngrad.cc
const CodecFamily& SignSgdFamily();  // bucket/sign.cc
const CodecFamily& EfSignFamily();  // bucket/sign.cc
const CodecFamily& OneBitFamily();  // bucket/two_level.cc
const CodecFamily& BinGradBFamily();  // bucket/two_level.cc
const CodecFamily& BinGradPbFamily();  // bucket/two_level.cc
const CodecFamily& OrqFamily();  // bucket/orq_quiver.cc
const CodecFamily& QuiverFamily();  // bucket/orq_quiver.cc
const CodecFamily& ZerolessFamily();  // bucket/zeroless.cc
const CodecFamily& AmqFamily();  // bucket/zeroless.cc
const CodecFamily& LaqFamily();  // bucket/laq.cc
const CodecFamily& AlqFamily();  // elastic/alq.cc
const CodecFamily& NaturalFamily();  // bucket/natural.cc
const CodecFamily& PowerSgdFamily();  // low_rank/powersgd.cc
const CodecFamily& TopKFamily();  // sparse/topk.cc
const CodecFamily& ThresholdFamily();  // sparse/topk.cc
const CodecFamily& AtomoSvdFamily();  // low_rank/atomo_svd.cc
const CodecFamily& RandomKFamily();  // sparse/randomk.cc
const CodecFamily& AtomoFamily();  // sparse/atomo.cc
const CodecFamily& DgcFamily();  // sparse/dgc.cc
const CodecFamily& EdenFamily();  // rotation/eden.cc

const CodecModifier& RotateModifier();  // rotation/rotate.cc
const CodecModifier& ErrorFeedbackModifier();  // error_feedback.cc
const CodecModifier& DgcModifier();  // error_feedback.cc
// clang-format on

}  // namespace elastiquant
