// ElastiQuant: stochastic or dithered rounding of each bucket, relative to its norm, to any set
// of levels. With exponential levels it is NUQSGD (Ramezani-Kebrya et al., JMLR 2021), with
// uniform ones QSGD (Alistarh et al., NeurIPS 2017).
#include "elastiquant/codec/elastic/elastic.h"

#include <memory>
#include <utility>
#include <vector>

#include "elastiquant/codec/elastic/elastic_decode.h"
#include "elastiquant/codec/elastic/elastic_encode.h"
#include "elastiquant/codec/elastic/elastic_spec.h"
#include "elastiquant/codec/message_shape.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {
namespace {

class ElasticCodec : public Codec {
 public:
  // by_tensor: of the tensors of a message, once they are known, none shares a bucket with
  // another; and no bucket is quantised twice.
  ElasticCodec(const ElasticSpec& spec, std::string text, bool by_tensor,
               std::vector<TensorStart> tensors = {}, size_t elements = 0)
      : spec_(spec),
        text_(std::move(text)),
        by_tensor_(by_tensor),
        tensors_(std::move(tensors)),
        elements_(elements) {
    if (!by_message()) FillLevelTable(spec.format.levels.span(), &table_);
  }

  std::string spec() const override { return text_; }
  CodecClass codec_class() const override { return CodecClass::kUnbiased; }

  std::optional<double> NmseBound(size_t n) const override {
    return spec_.fit ? FittedNmseBound(spec_.format, n) : ElasticNmseBound(FormatFor(n), n);
  }

  bool fits() const { return spec_.fit; }
  // Not of levels that are fitted, which only a frame tells.
  ElasticFormat FormatFor(size_t n) const {
    ElasticFormat format = spec_.format;
    if (spec_.levels_by_message()) ResolveRatio(n, &format);
    if (n == elements_) format.tensors = tensors_;  // Encode takes no others
    return format;
  }

  size_t granule() const override { return tensors_.empty() ? spec_.format.bucket : 0; }
  std::span<const TensorStart> tensors() const { return tensors_; }

  Exchange exchange() const override {
    return by_tensor_ ? Exchange::kAllGather : Exchange::kTwoPhase;
  }

  Result<std::shared_ptr<const Codec>> WithShapes(
      std::span<const TensorShape> shapes) const override {
    if (!by_tensor_) return {std::shared_ptr<const Codec>()};
    EQ_ASSIGN_OR_RETURN(const MessageShape message, MessageShape::Of(shapes));
    std::vector<TensorStart> tensors;
    TensorStart next;
    for (const PlacedTensor& tensor : message.tensors()) {
      tensors.push_back(next);
      next.begin += tensor.size;
      next.first_bucket +=
          spec_.format.bucket == 0 ? 1 : CeilDivide(tensor.size, spec_.format.bucket);
    }
    return {std::make_shared<const ElasticCodec>(spec_, text_, true, std::move(tensors),
                                                 message.elements())};
  }

  size_t MaxFrameBytes(size_t n) const override {
    return MaxElasticFrameBytes(FormatFor(n), n);
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    EQ_RETURN_IF_ERROR(
        CheckEncodeSizes(values.size(), MaxFrameBytes(values.size()), frame.size()));
    if (!tensors_.empty() && values.size() != elements_) {
      return InvalidArgument("codec '" + text_ + "' was given the shapes of tensors with " +
                             std::to_string(elements_) + " values, but a message of " +
                             std::to_string(values.size()));
    }
    ElasticFormat format = FormatFor(values.size());
    if (!by_message()) return EncodeElasticFrame(format, table_, values, key, work, frame);
    if (spec_.fit) FitTo(values, work, &format);
    LevelTable table;
    FillLevelTable(format.levels.span(), &table);
    return EncodeElasticFrame(format, table, values, key, work, frame);
  }

 private:
  bool by_message() const { return spec_.fit || spec_.levels_by_message(); }

  void FitTo(std::span<const float> values, Workspace& work, ElasticFormat* format) const {
    format->levels = FitLevelsTo(values, format->norm, format->bucket, format->bits,
                                 spec_.may_lack_zero(), work);
    format->family =
        format->levels.has_zero() ? LevelFamily::kExplicit : LevelFamily::kZeroless;
  }

  const ElasticSpec spec_;
  const std::string text_;
  const bool by_tensor_;
  const std::vector<TensorStart> tensors_;
  const size_t elements_;  // of the tensors
  LevelTable table_;
};

Result<std::shared_ptr<const Codec>> MakeElastic(const Spec& spec) {
  EQ_ASSIGN_OR_RETURN(const ElasticSpec parsed, ParseElasticSpec(spec));
  return MakeElasticCodec(parsed, ElasticSpecText(parsed));
}

}  // namespace

std::shared_ptr<const Codec> MakeElasticCodec(const ElasticSpec& spec, std::string text,
                                              bool by_tensor) {
  return std::make_shared<ElasticCodec>(spec, std::move(text), by_tensor);
}

std::span<const TensorStart> ElasticTensors(const Codec& codec) {
  const auto* elastic = dynamic_cast<const ElasticCodec*>(&codec);
  return elastic == nullptr ? std::span<const TensorStart>() : elastic->tensors();
}

std::optional<ElasticFormat> ElasticFormatFor(const Codec& codec, size_t n) {
  const auto* elastic = dynamic_cast<const ElasticCodec*>(&codec);
  if (elastic == nullptr || elastic->fits()) return std::nullopt;
  return elastic->FormatFor(n);
}

const CodecFamily& ElasticFamily() {
  static const CodecFamily family{
      CodecId::kElastic,
      ElasticInfo(),
      {
          "elastic",
          "elastic:levels=exp",
          "elastic:p=0.5",
          "elastic:levels=uniform",
          "elastic:levels=uniform,rounding=dither",
          "elastic:levels=0.1/0.3/1,norm=l2,bucket=7",
          "elastic:bits=2,norm=l1,bucket=3,levels=exp",
          "elastic:bits=2,levels=uniform,rounding=dither,bucket=100",
          "elastic:bits=3,p=0.5,norm=l2,bucket=0",
          "elastic:bits=5,norm=l3,bucket=0,levels=exp",
          "elastic:bits=6,p=0.5,bucket=40000",
          "elastic:bits=7,levels=uniform,norm=l1.5,bucket=33",
          "elastic:bits=8,bucket=100000,norm=l2,levels=exp",
          "elastic:bits=8,p=0.5",
          "elastic:bits=8,levels=uniform,rounding=dither,bucket=0",
          "elastic:levels=exp|elias",
          "elastic:levels=uniform,rounding=dither,bucket=100|elias",
          "elastic:levels=exp|rans",
          "elastic:bits=2,norm=l2,bucket=0,levels=exp|rans",
          "elastic:bits=8,levels=uniform,rounding=dither|rans",
          "elastic:bits=3,levels=0.25/1,bucket=40|rans",
          "elastic:bits=2,levels=fit,bucket=100",
          "elastic:bits=3,levels=fit,norm=l2,bucket=0",
          "elastic:bits=5,levels=fit,bucket=33",
          "elastic:bits=8,levels=fit,norm=l2,bucket=40000",
          "elastic:bits=2,levels=fit|rans",
          "elastic:norm=l1,levels=fit,bucket=64|elias",
          "elastic|rans",
      },
      MakeElastic,
      DecodeElastic};
  return family;
}

}  // namespace elastiquant
