// ElastiQuant: stochastic or dithered rounding of each bucket, relative to its norm, to any set
// of levels. With exponential levels it is NUQSGD (Ramezani-Kebrya et al., JMLR 2021), with
// uniform ones QSGD (Alistarh et al., NeurIPS 2017).
#include "elastiquant/codec/elastic.h"

#include <memory>
#include <utility>

#include "elastiquant/codec/elastic_decode.h"
#include "elastiquant/codec/elastic_encode.h"
#include "elastiquant/codec/elastic_spec.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {
namespace {

class ElasticCodec : public Codec {
 public:
  ElasticCodec(const ElasticSpec& spec, std::string text)
      : spec_(spec), text_(std::move(text)) {
    if (!spec.levels_by_message()) FillLevelTable(spec.format.levels.span(), &table_);
  }

  std::string spec() const override { return text_; }
  CodecClass codec_class() const override { return CodecClass::kUnbiased; }

  std::optional<double> NmseBound(size_t n) const override {
    return ElasticNmseBound(FormatFor(n), n);
  }

  ElasticFormat FormatFor(size_t n) const {
    ElasticFormat format = spec_.format;
    if (spec_.levels_by_message()) ResolveRatio(n, &format);
    return format;
  }

  size_t granule() const override { return spec_.format.bucket; }

  size_t MaxFrameBytes(size_t n) const override {
    return MaxElasticFrameBytes(spec_.format, n);
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    EQ_RETURN_IF_ERROR(
        CheckEncodeSizes(values.size(), MaxFrameBytes(values.size()), frame.size()));
    if (!spec_.levels_by_message()) {
      return EncodeElasticFrame(spec_.format, table_, values, key, work, frame);
    }
    const ElasticFormat format = FormatFor(values.size());
    LevelTable table;
    FillLevelTable(format.levels.span(), &table);
    return EncodeElasticFrame(format, table, values, key, work, frame);
  }

 private:
  const ElasticSpec spec_;
  const std::string text_;
  LevelTable table_;
};

Result<std::shared_ptr<const Codec>> MakeElastic(const Spec& spec) {
  EQ_ASSIGN_OR_RETURN(const ElasticSpec parsed, ParseElasticSpec(spec));
  return MakeElasticCodec(parsed, ElasticSpecText(parsed));
}

}  // namespace

std::shared_ptr<const Codec> MakeElasticCodec(const ElasticSpec& spec, std::string text) {
  return std::make_shared<ElasticCodec>(spec, std::move(text));
}

std::optional<ElasticFormat> ElasticFormatFor(const Codec& codec, size_t n) {
  const auto* elastic = dynamic_cast<const ElasticCodec*>(&codec);
  if (elastic == nullptr) return std::nullopt;
  return elastic->FormatFor(n);
}

const CodecFamily& ElasticFamily() {
  static const CodecFamily family{
      CodecId::kElastic,
      ElasticInfo(),
      {
          "elastic",
          "elastic:p=0.5",
          "elastic:levels=uniform",
          "elastic:levels=uniform,rounding=dither",
          "elastic:levels=0.1/0.3/1,norm=l2,bucket=7",
          "elastic:bits=2,norm=l1,bucket=3",
          "elastic:bits=2,levels=uniform,rounding=dither,bucket=100",
          "elastic:bits=3,p=0.5,norm=l2,bucket=0",
          "elastic:bits=5,norm=l3,bucket=0",
          "elastic:bits=6,p=0.5,bucket=40000",
          "elastic:bits=7,levels=uniform,norm=l1.5,bucket=33",
          "elastic:bits=8,bucket=100000,norm=l2",
          "elastic:bits=8,p=0.5",
          "elastic:bits=8,levels=uniform,rounding=dither,bucket=0",
          "elastic|elias",
          "elastic:levels=uniform,rounding=dither,bucket=100|elias",
          "elastic|rans",
          "elastic:bits=2,norm=l2,bucket=0|rans",
          "elastic:bits=8,levels=uniform,rounding=dither|rans",
          "elastic:bits=3,levels=0.25/1,bucket=40|rans",
      },
      MakeElastic,
      DecodeElastic};
  return family;
}

}  // namespace elastiquant
