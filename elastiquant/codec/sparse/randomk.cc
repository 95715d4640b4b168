// Random-k: k coordinates by lot. The lot is the message's key, so no positions are sent.
#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <string>

#include "elastiquant/codec/sparse/sparse_codec.h"
#include "elastiquant/codec/sparse/sparse_values.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

class RandomKCodec : public SparseCodec {
 public:
  RandomKCodec(const KeptCount& count, int bits, bool scale)
      : SparseCodec({.bits = bits, .stochastic = scale, .placement = SparsePlacement::kDrawn}),
        count_(count),
        scale_(scale) {}

  std::string spec() const override {
    return "randomk:" + count_.Text() + ",bits=" + std::to_string(bits()) +
           ",scale=" + (scale_ ? "yes" : "no");
  }
  CodecClass codec_class() const override {
    return scale_ ? CodecClass::kUnbiased : CodecClass::kContractive;
  }

  // With q = n/k and the values' error c, which scaling squares: E|Q(v)-v|^2 is
  // (q - 1 + q c) |v|^2; without scaling (1 - 1/q + c/q) |v|^2.
  std::optional<double> NmseBound(size_t n) const override {
    if (n == 0) return 0;
    const double q = static_cast<double>(n) / static_cast<double>(count_.Of(n));
    const double c = SparseValueError(n, bits());
    return scale_ ? q * (1 + c) - 1 : 1 - (1 - c) / q;
  }

 protected:
  size_t MaxKept(size_t n) const override { return count_.Of(n); }
  Result<SparseMessage> Select(std::span<const float> values, StreamKey key,
                               Workspace& work) const override {
    const size_t n = values.size(), k = count_.Of(n);
    SparseMessage message;
    EQ_ASSIGN_OR_RETURN(message.kept, SelectDrawn(values, MakeLaneKeys(key), k, work));
    if (!scale_) return message;
    const float factor = static_cast<float>(static_cast<double>(n) / static_cast<double>(k));
    const std::span<float> kept = message.kept.values;
    const float largest = std::bit_cast<float>(AbsMaxBits(kept.data(), kept.size()));
    if (largest > std::numeric_limits<float>::max() / factor) {
      return OutOfRange(
          "a value of " + std::to_string(largest) +
          ", scaled by n/k = " + std::to_string(factor) +
          ", exceeds the largest float; use scale=no, or scale the gradient down");
    }
    for (float& v : kept) v *= factor;
    return message;
  }

 private:
  const KeptCount count_;
  const bool scale_;
};

Result<std::shared_ptr<const Codec>> MakeRandomK(const Spec& spec) {
  EQ_ASSIGN_OR_RETURN(const KeptCount count, KeptCount::Parse(spec.codec));
  EQ_ASSIGN_OR_RETURN(const int bits, ParseSparseBits(spec.codec));
  EQ_ASSIGN_OR_RETURN(const bool scale, ParseYesOrNo(spec.codec, "scale", "yes"));
  return {std::make_shared<RandomKCodec>(count, bits, scale)};
}

}  // namespace

const CodecFamily& RandomKFamily() {
  static const CodecFamily family = [] {
    std::vector<CodecParameter> parameters = KeptCount::Parameters();
    parameters.push_back(SparseBitsParameter());
    parameters.push_back(
        {"scale", "yes", "yes: times n/k, unbiased; or no: contractive, to be used with |ef"});
    return CodecFamily{CodecId::kSparse,
                       {"randomk",
                        "randomk:ratio=0.01",
                        CodecClass::kUnbiased,
                        "coordinates by lot, whose positions the receiver knows",
                        parameters,
                        {}},
                       {"randomk:ratio=0.01", "randomk:k=3,bits=32", "randomk:ratio=0.2,bits=8",
                        "randomk:ratio=1,bits=4", "randomk:ratio=0.1,bits=4,scale=no",
                        "randomk:ratio=0.5,bits=16,scale=no"},
                       MakeRandomK,
                       DecodeSparse};
  }();
  return family;
}

}  // namespace elastiquant
