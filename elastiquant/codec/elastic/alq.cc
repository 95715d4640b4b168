// ALQ (Faghri et al., "Adaptive Gradient Quantization for Data-Parallel SGD", NeurIPS 2020): an
// elastic codec whose levels are fitted to the gradients now and then (adapt.h).
#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/elastic/elastic.h"
#include "elastiquant/codec/elastic/elastic_decode.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {
namespace {

Status CheckNorm(const SpecPart& part) {
  const std::string_view norm = SpecValue(part, "norm", "l2");
  if (norm == "l2" || norm == "linf") return Status::Ok();
  return InvalidArgument("codec 'alq': norm=" + std::string(norm) +
                         " is not valid; use l2 or linf");
}

std::string LevelsText(const ElasticFormat& format) {
  if (format.family == LevelFamily::kExponential) return "exp";
  if (format.family == LevelFamily::kUniform) return "uniform";
  std::string text;
  for (const float level : format.levels.span().subspan(1)) {
    text += (text.empty() ? "" : "/") + NumberText(level);
  }
  return text;
}

Result<std::shared_ptr<const Codec>> MakeAlq(const Spec& spec) {
  EQ_RETURN_IF_ERROR(CheckNorm(spec.codec));
  if (SpecValue(spec.codec, "levels", "") == "fit") {
    return InvalidArgument(
        "codec 'alq': levels=fit is not valid; use exp, uniform, or a list that ends with 1");
  }
  Spec elastic = spec;
  const auto set_default = [&](const char* key, const char* value) {
    if (SpecValue(spec.codec, key, "").empty()) elastic.codec.pairs.emplace_back(key, value);
  };
  set_default("bits", "3");
  set_default("norm", "l2");
  set_default("bucket", "8192");
  if (SpecValue(spec.codec, "levels", "exp") == "exp") set_default("p", "0.5");
  EQ_ASSIGN_OR_RETURN(const ElasticSpec parsed, ParseElasticSpec(elastic));
  const ElasticFormat& format = parsed.format;
  return MakeElasticCodec(
      parsed, "alq:bits=" + std::to_string(format.bits) + ",levels=" + LevelsText(format) +
                  ",norm=" + (format.norm.kind == NormKind::kL2 ? "l2" : "linf") + ",bucket=" +
                  std::to_string(format.bucket) + std::string(CodingText(format.coding)));
}

}  // namespace

const CodecFamily& AlqFamily() {
  static const CodecFamily family{
      CodecId::kElastic,
      {"alq",
       "alq:bits=3,levels=exp,norm=l2,bucket=8192",
       CodecClass::kUnbiased,
       "ALQ: an elastic whose levels are adapted to the gradients",
       {{"bits", "3", "2 to 8: bits of a code, its sign included"},
        {"levels", "exp",
         "to begin with: exp (1, 1/2, ...), uniform, or a list that ends with 1"},
        {"norm", "l2", "l2 or linf"},
        {"bucket", "8192", "coordinates that share a norm; 0: the whole message"}},
       {"rans", "elias"}},
      {"alq", "alq:levels=0.01/0.03/1,bucket=500|rans",
       "alq:bits=4,levels=uniform,norm=linf,bucket=100|elias"},
      MakeAlq,
      DecodeElastic};
  return family;
}

}  // namespace elastiquant
