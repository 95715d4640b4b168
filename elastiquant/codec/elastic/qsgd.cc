// QSGD (Alistarh et al., NeurIPS 2017), its variant with the largest value as the norm
// (QSGDinf, or QSGD-V), NUQSGD (Ramezani-Kebrya et al., JMLR 2021), and ElastiQuant as it was
// published, under the names that the field knows them by: each is an elastic codec with its
// levels and its norm fixed.
#include <string>

#include "elastiquant/codec/elastic/elastic.h"
#include "elastiquant/codec/elastic/elastic_decode.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {
namespace {

struct Preset {
  const char* name;
  const char* levels;
  const char* p;
  const char* norm;
  const char* bucket = "512";  // unless the spec has one
  bool by_tensor = false;      // and quantised once, by all-gather
};
constexpr Preset kQsgd{"qsgd", "uniform", "auto", "l2"};
constexpr Preset kQsgdv{"qsgdv", "uniform", "auto", "linf"};
constexpr Preset kNuqsgd{"nuqsgd", "exp", "0.5", "l2"};
constexpr Preset kElastiQuant{"elastiquant", "exp", "0.5", "l2", "8192", true};

template <const Preset& preset>
Result<std::shared_ptr<const Codec>> MakePreset(const Spec& spec) {
  Spec elastic = spec;
  elastic.codec.pairs.emplace_back("levels", preset.levels);
  elastic.codec.pairs.emplace_back("p", preset.p);
  elastic.codec.pairs.emplace_back("norm", preset.norm);
  if (SpecValue(spec.codec, "bucket", "").empty()) {
    elastic.codec.pairs.emplace_back("bucket", preset.bucket);
  }
  EQ_ASSIGN_OR_RETURN(const ElasticSpec parsed, ParseElasticSpec(elastic));
  const ElasticFormat& format = parsed.format;
  return MakeElasticCodec(parsed,
                          std::string(preset.name) + ":bits=" + std::to_string(format.bits) +
                              ",bucket=" + std::to_string(format.bucket) +
                              std::string(CodingText(format.coding)),
                          preset.by_tensor);
}

template <const Preset& preset>
CodecFamily MakeFamily(const char* summary) {
  const std::string name = preset.name;
  return {CodecId::kElastic,
          {name,
           name + ":bits=4,bucket=" + preset.bucket,
           CodecClass::kUnbiased,
           summary,
           {{"bits", "4", "2 to 8: bits of a code, its sign included"},
            {"bucket", preset.bucket,
             preset.by_tensor ? "coordinates that share a norm; 0: a whole tensor"
                              : "coordinates that share a norm; 0: the whole message"}},
           {"rans", "elias"}},
          {name, name + ":bits=3,bucket=100|elias", name + ":bits=7,bucket=0|rans"},
          MakePreset<preset>,
          DecodeElastic};
}

}  // namespace

const CodecFamily& QsgdFamily() {
  static const CodecFamily family =
      MakeFamily<kQsgd>("QSGD: uniform levels under each bucket's L2 norm");
  return family;
}

const CodecFamily& QsgdvFamily() {
  static const CodecFamily family = MakeFamily<kQsgdv>(
      "QSGD-V, or QSGDinf: uniform levels under each bucket's largest value");
  return family;
}

const CodecFamily& NuqsgdFamily() {
  static const CodecFamily family =
      MakeFamily<kNuqsgd>("NUQSGD: levels 1, 1/2, 1/4, ... under each bucket's L2 norm");
  return family;
}

const CodecFamily& ElastiQuantFamily() {
  static const CodecFamily family = MakeFamily<kElastiQuant>(
      "ElastiQuant as published: levels 1, 1/2, ... under L2 norms, by tensor, all-gathered");
  return family;
}

}  // namespace elastiquant
