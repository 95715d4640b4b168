// What a scheme provides in order to be registered. Only registry.cc lists the families.
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

// Where a decoder puts its values, out[i] = Q[i] or out[i] += weight * Q[i], and its only way
// to the output. Bytes may be hostile, but they must decode to an error or to finite values. So
// a decoder gets at the output only by saying how large the values are that it will put there,
// or with a function that looks at each of them. Neither takes another pass over the values.
class DecodeSink {
 public:
  explicit DecodeSink(std::span<float> out) : out_(out) {}
  DecodeSink(std::span<float> out, Accumulate how) : out_(out), how_(how) {}

  size_t size() const { return out_.size(); }  // which is the frame's element count
  Accumulate how() const { return how_; }
  // Returns the sink of the first `count` coordinates.
  DecodeSink First(size_t count) const { return {out_.first(count), how_}; }

  // Returns where coordinate `begin` is, for it and for others behind it whose values are at
  // most `largest` in magnitude. Returns null if `largest` is NaN or infinite: then the frame
  // must be refused.
  [[nodiscard]] float* Room(size_t begin, float largest) const {
    return std::isfinite(largest) ? out_.data() + begin : nullptr;
  }
  // Calls write(out), with coordinate `begin` at `out`. It puts values there and returns
  // whether all of them are finite, which is returned. If they are not, the frame must be
  // refused.
  template <typename Write>
  [[nodiscard]] bool PutChecked(size_t begin, const Write& write) const {
    return write(out_.data() + begin);
  }
  // Returns where values will be put soon, so that the place can be fetched into caches. It is
  // not to be read.
  const float* Soon(size_t begin) const { return out_.data() + begin; }

 private:
  std::span<float> out_;
  Accumulate how_;
};

// A scheme and its name. Families with the same id share a wire format and a decoder.
struct CodecFamily {
  CodecId id;
  CodecInfo info;
  // Specs that together take every path of the scheme; the conformance suite runs each of them.
  std::vector<std::string> variants;
  Result<std::shared_ptr<const Codec>> (*make)(const Spec& spec);
  // Checks everything in the parameters and the payload before relying on it.
  Status (*decode)(const FrameView& frame, const DecodeSink& sink, Workspace& work);
  // Computes FrameSummary::variance. It is null if the scheme's frames do not tell it.
  Result<double> (*variance)(const FrameView& frame) = nullptr;
};

// A modifier, which wraps any codec: `spec|name`. Modifiers apply from left to right.
struct CodecModifier {
  std::string name;
  std::string summary;
  std::vector<CodecParameter> parameters;
  // Wraps `inner`; `part` has only keys that are declared above. An error says why `inner`
  // cannot be wrapped.
  Result<std::shared_ptr<const Codec>> (*wrap)(std::shared_ptr<const Codec> inner,
                                               const SpecPart& part);
  // A modifier that has frames of its own gives specs for the conformance suite, the frames' id
  // and their decoder.
  std::vector<std::string> variants = {};
  CodecId id = {};
  Status (*decode)(const FrameView& frame, const DecodeSink& sink, Workspace& work) = nullptr;
};

// Return all of them, in the order in which they are to be shown.
std::span<const CodecModifier* const> CodecModifiers();
std::span<const CodecFamily* const> CodecFamilies();

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
const CodecFamily& ChunkTopKFamily();  // sparse/chunk_topk.cc
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
