// Top-k: the coordinates of the largest magnitudes, as in Aji and Heafield (EMNLP 2017) and in
// Stich, Cordonnier and Jaggi (NeurIPS 2018); and all above a threshold.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/sparse/sparse_codec.h"
#include "elastiquant/codec/sparse/sparse_values.h"

namespace elastiquant {
namespace {

class TopKCodec : public SparseCodec {
 public:
  TopKCodec(const KeptCount& count, int bits, bool sampled)
      : SparseCodec({.bits = bits}), count_(count), sampled_(sampled) {}

  std::string spec() const override {
    return "topk:" + count_.Text() + ",bits=" + SparseBitsText(bits()) +
           ",method=" + (sampled_ ? "sampled" : "exact");
  }
  CodecClass codec_class() const override { return CodecClass::kContractive; }

  // What is dropped is at most 1 - k/n of the squared norm, and what is kept has an error of
  // its own. Without the zeros that are not sent, the same holds.
  std::optional<double> NmseBound(size_t n) const override {
    if (n == 0) return 0;
    const double part = static_cast<double>(LeastKept(n)) / static_cast<double>(n);
    return 1 - part * (1 - SparseValueError(n, bits()));
  }

 protected:
  size_t MaxKept(size_t n) const override {
    const size_t k = count_.Of(n);
    return sampled_ ? std::min(n, k + 3 * k / 10) : k;
  }
  Result<SparseMessage> Select(std::span<const float> values, StreamKey,
                               Workspace& work) const override {
    const size_t n = values.size(), k = count_.Of(n);
    SparseMessage message;
    if (sampled_) {
      EQ_ASSIGN_OR_RETURN(message.kept,
                          SelectSampled(values, k, LeastKept(n), MaxKept(n), work));
    } else {
      EQ_ASSIGN_OR_RETURN(message.kept, SelectTop(values, k, work));
    }
    return message;
  }

 private:
  size_t LeastKept(size_t n) const {
    const size_t k = count_.Of(n);
    return sampled_ ? k - k / 5 : k;
  }

  const KeptCount count_;
  const bool sampled_;
};

class ThresholdCodec : public SparseCodec {
 public:
  ThresholdCodec(float value, int bits) : SparseCodec({.bits = bits}), value_(value) {}

  std::string spec() const override {
    return "threshold:value=" + NumberText(value_) + ",bits=" + SparseBitsText(bits());
  }
  CodecClass codec_class() const override { return CodecClass::kBiased; }
  // If all is dropped. In absolute terms the error is below n value^2.
  std::optional<double> NmseBound(size_t) const override { return 1; }

 protected:
  size_t MaxKept(size_t n) const override { return n; }
  Result<SparseMessage> Select(std::span<const float> values, StreamKey,
                               Workspace& work) const override {
    SparseMessage message;
    EQ_ASSIGN_OR_RETURN(message.kept, SelectAtLeast(values, value_, work));
    return message;
  }

 private:
  const float value_;
};

Result<std::shared_ptr<const Codec>> MakeTopK(const Spec& spec) {
  EQ_ASSIGN_OR_RETURN(const KeptCount count, KeptCount::Parse(spec.codec));
  EQ_ASSIGN_OR_RETURN(const int bits, ParseSparseBits(spec.codec, /*exact=*/true));
  const std::string_view method = SpecValue(spec.codec, "method", "exact");
  if (method != "exact" && method != "sampled") {
    return BadKey(spec.codec, "method", method, "exact or sampled");
  }
  return {std::make_shared<TopKCodec>(count, bits, method == "sampled")};
}

Result<std::shared_ptr<const Codec>> MakeThreshold(const Spec& spec) {
  const std::string_view text = SpecValue(spec.codec, "value", "0.01");
  float value = 0;
  if (!ParseNumber(text, &value) || !(value > 0) || !std::isfinite(value)) {
    return BadKey(spec.codec, "value", text,
                  "a magnitude above 0, from 1e-45 to 3.4e38, the least that is kept");
  }
  EQ_ASSIGN_OR_RETURN(const int bits, ParseSparseBits(spec.codec, /*exact=*/true));
  return {std::make_shared<ThresholdCodec>(value, bits)};
}

}  // namespace

const CodecFamily& TopKFamily() {
  static const CodecFamily family = [] {
    std::vector<CodecParameter> parameters = KeptCount::Parameters();
    parameters.push_back(SparseBitsParameter(/*exact=*/true));
    parameters.push_back(
        {"method", "exact",
         "exact, or sampled: a threshold from a sample, 0.8 to 1.3 times as many"});
    return CodecFamily{
        CodecId::kSparse,
        {"topk",
         "topk:ratio=0.01",
         CodecClass::kContractive,
         "the coordinates of the largest magnitudes; wants |ef",
         parameters,
         {}},
        {"topk:ratio=0.01", "topk:k=5,bits=32", "topk:ratio=0.3,bits=8", "topk:ratio=1,bits=4",
         "topk:ratio=0.05,bits=4,method=sampled", "topk:ratio=0.2,bits=exact"},
        MakeTopK,
        DecodeSparse};
  }();
  return family;
}

const CodecFamily& ThresholdFamily() {
  static const CodecFamily family{
      CodecId::kSparse,
      {"threshold",
       "threshold:value=0.01",
       CodecClass::kBiased,
       "the coordinates of at least a given magnitude; wants |ef",
       {{"value", "0.01", "the least magnitude that is kept, above 0"},
        SparseBitsParameter(/*exact=*/true)},
       {}},
      {"threshold:value=0.01", "threshold:value=1,bits=8", "threshold:value=2.5,bits=4",
       "threshold:value=1e-30,bits=32", "threshold:value=1e-45,bits=exact"},
      MakeThreshold,
      DecodeSparse};
  return family;
}

}  // namespace elastiquant
