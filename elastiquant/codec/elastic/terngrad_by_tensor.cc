#include "elastiquant/codec/terngrad_by_tensor.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/codec_decorator.h"
#include "elastiquant/codec/deviation_clip.h"
#include "elastiquant/codec/elastic/elastic.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

class TernGradByTensor : public CodecDecorator {
 public:
  TernGradByTensor(std::shared_ptr<const Codec> ternary, float clip)
      : CodecDecorator(std::move(ternary)), clip_(clip) {}

  std::string spec() const override { return inner().spec(); }
  CodecClass codec_class() const override {
    return clip_ == 0 ? CodecClass::kUnbiased : CodecClass::kBiased;
  }
  // What is cut off has no bound.
  std::optional<double> NmseBound(size_t n) const override {
    return clip_ == 0 ? inner().NmseBound(n) : std::nullopt;
  }
  size_t granule() const override { return 0; }
  Result<std::shared_ptr<const Codec>> WithShapes(
      std::span<const TensorShape> shapes) const override {
    EQ_ASSIGN_OR_RETURN(auto ternary, inner().WithShapes(shapes));
    return {std::make_shared<const TernGradByTensor>(std::move(ternary), clip_)};
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    if (clip_ == 0) return inner().Encode(values, key, work, frame);
    const std::span<uint8_t> bytes =
        work.SharedScratch(Workspace::kCodecSlot + 1, values.size_bytes());
    const std::span<float> clipped(reinterpret_cast<float*>(bytes.data()), values.size());
    std::ranges::copy(values, clipped.begin());
    const std::span<const TensorStart> tensors = ElasticTensors(inner());
    for (size_t t = 0; t < std::max<size_t>(tensors.size(), 1); ++t) {
      const size_t begin = tensors.empty() ? 0 : std::min(tensors[t].begin, values.size());
      const size_t end = t + 1 < tensors.size() ? std::min(tensors[t + 1].begin, values.size())
                                                : values.size();
      Cut(clipped.subspan(begin, end - begin));
    }
    return inner().Encode(clipped, key, work, frame);
  }

 private:
  // Leaves a tensor with a NaN or infinity as it is, for the encoder to name the place.
  void Cut(std::span<float> tensor) const {
    if (AbsMaxBits(tensor.data(), tensor.size()) >= kNonFiniteBits) return;
    const float most = DeviationClip(tensor, clip_);
    for (float& v : tensor) v = std::clamp(v, -most, most);
  }

  const float clip_;
};

}  // namespace

Result<std::shared_ptr<const Codec>> MakeTernGradByTensor(float clip, IndexCoding coding) {
  Spec elastic;
  elastic.codec.name = "terngrad";
  elastic.codec.pairs = {
      {"bits", "2"}, {"levels", "uniform"}, {"norm", "linf"}, {"bucket", "0"}};
  EQ_ASSIGN_OR_RETURN(ElasticSpec parsed, ParseElasticSpec(elastic));
  parsed.format.coding = coding;
  const std::string text =
      "terngrad:clip=" + NumberText(clip) + ",bucket=tensor" + std::string(CodingText(coding));
  return {std::make_shared<const TernGradByTensor>(MakeElasticCodec(parsed, text, true), clip)};
}

}  // namespace elastiquant
