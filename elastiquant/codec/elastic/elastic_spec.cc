#include "elastiquant/codec/elastic/elastic_spec.h"

#include <cmath>
#include <vector>

#include "elastiquant/base/number.h"

namespace elastiquant {
namespace {

// ParseElasticSpec puts the codec's name in front of these messages.
Status BadValue(std::string_view key, std::string_view value, std::string_view valid) {
  return InvalidArgument(std::string(key) + "=" + std::string(value) + " is not valid; use " +
                         std::string(valid));
}

Status ParseBits(std::string_view text, ElasticFormat* format) {
  if (ParseNumber(text, &format->bits) && format->bits >= 2 && format->bits <= 8) {
    return Status::Ok();
  }
  return BadValue("bits", text, "2 to 8");
}

Status ParseBucket(std::string_view text, ElasticFormat* format) {
  if (ParseNumber(text, &format->bucket)) return Status::Ok();
  return BadValue("bucket", text, "1 to 4294967295, or 0 for one bucket of the whole message");
}

Status ParseNorm(std::string_view text, ElasticFormat* format) {
  if (text == "linf") {
    format->norm = {NormKind::kLinf, 0};
    return Status::Ok();
  }
  float q = 0;
  if (!text.starts_with('l') || !ParseNumber(text.substr(1), &q) || !std::isfinite(q) ||
      q < 1) {
    return BadValue("norm", text, "linf, l1, l2, or l<q> with a number q >= 1, such as l3");
  }
  format->norm = q == 1   ? NormOrder{NormKind::kL1, 0}
                 : q == 2 ? NormOrder{NormKind::kL2, 0}
                          : NormOrder{NormKind::kLq, q};
  return Status::Ok();
}

Status ParseRounding(std::string_view text, ElasticFormat* format) {
  if (text != "stochastic" && text != "dither") {
    return BadValue("rounding", text, "stochastic or dither");
  }
  format->rounding = text == "dither" ? Rounding::kDither : Rounding::kStochastic;
  if (format->rounding == Rounding::kDither && format->family != LevelFamily::kUniform) {
    return InvalidArgument(
        "rounding=dither needs levels=uniform; other levels round with rounding=stochastic");
  }
  return Status::Ok();
}

Status ParseLevelList(std::string_view text, ElasticFormat* format) {
  constexpr std::string_view kValid =
      "fit, exp, uniform, or a list of levels above 0 that ends with 1, such as 0.1/0.3/1";
  std::vector<float> upper;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    if (!ParseNumber(text.substr(begin, end - begin), &upper.emplace_back())) {
      return BadValue("levels", text, kValid);
    }
    begin = end + 1;
  }
  const auto levels = ExplicitLevels(format->bits, upper);
  if (!levels.ok()) {
    return BadValue("levels", text, "another list: " + levels.status().message());
  }
  format->levels = *levels;
  return Status::Ok();
}

Status ParseRatio(std::string_view text, ElasticSpec* spec) {
  spec->auto_p = text == "auto";
  if (spec->auto_p) {
    if (spec->format.bucket != 0) ResolveRatio(spec->format.bucket, &spec->format);
    return Status::Ok();
  }
  if (!ParseNumber(text, &spec->format.p)) {
    return BadValue("p", text, "auto or a number between 0 and 1");
  }
  const auto levels = ExponentialLevels(spec->format.bits, spec->format.p);
  if (!levels.ok())
    return BadValue("p", text, "auto or another p: " + levels.status().message());
  spec->format.levels = *levels;
  return Status::Ok();
}

// Of levels and p, which go together. Bits, norm and bucket must be known. `coded`: an entropy
// coder follows, for which even steps have the least error at the same bytes.
Status ParseLevels(const SpecPart& part, bool coded, ElasticSpec* spec) {
  const bool has_p = !SpecValue(part, "p", "").empty();
  const std::string_view usual = has_p ? "exp" : coded ? "uniform" : "fit";
  const std::string_view levels = SpecValue(part, "levels", usual);
  const std::string_view p = SpecValue(part, "p", "auto");
  ElasticFormat& format = spec->format;
  if (levels == "exp") return ParseRatio(p, spec);
  if (p != "auto") {
    return InvalidArgument("p=" + std::string(p) + " goes with levels=exp only");
  }
  if (levels == "uniform") {
    format.family = LevelFamily::kUniform;
    format.levels = UniformLevels(format.bits);
    return Status::Ok();
  }
  if (levels == "fit") {
    spec->fit = true;
    return Status::Ok();
  }
  format.family = LevelFamily::kExplicit;
  return ParseLevelList(levels, &format);
}

Status ParseModifiers(const std::vector<SpecPart>& modifiers, ElasticFormat* format) {
  if (modifiers.size() > 1) {
    return InvalidArgument("it takes one modifier, |rans or |elias, not " +
                           std::to_string(modifiers.size()));
  }
  if (modifiers.empty()) return Status::Ok();
  format->coding = modifiers[0].name == "rans" ? IndexCoding::kRans : IndexCoding::kElias;
  return Status::Ok();
}

std::string LevelsText(const ElasticSpec& spec) {
  const ElasticFormat& format = spec.format;
  if (spec.fit) return "fit";
  if (format.family == LevelFamily::kUniform) return "uniform";
  if (format.family == LevelFamily::kExponential) {
    return "exp,p=" + (spec.auto_p ? "auto" : NumberText(format.p));
  }
  std::string text;
  for (float level : format.levels.span().subspan(1)) {
    text += (text.empty() ? "" : "/") + NumberText(level);
  }
  return text;
}

std::string NormText(NormOrder norm) {
  switch (norm.kind) {
    case NormKind::kL1:
      return "l1";
    case NormKind::kL2:
      return "l2";
    case NormKind::kLq:
      return "l" + NumberText(static_cast<float>(norm.q));
    default:
      return "linf";
  }
}

Result<ElasticSpec> ParseValues(const Spec& spec) {
  ElasticSpec parsed;
  ElasticFormat& format = parsed.format;
  const SpecPart& part = spec.codec;
  EQ_RETURN_IF_ERROR(ParseBits(SpecValue(part, "bits", "4"), &format));
  EQ_RETURN_IF_ERROR(ParseNorm(SpecValue(part, "norm", "linf"), &format));
  EQ_RETURN_IF_ERROR(ParseBucket(SpecValue(part, "bucket", "512"), &format));
  EQ_RETURN_IF_ERROR(ParseLevels(part, !spec.modifiers.empty(), &parsed));
  EQ_RETURN_IF_ERROR(ParseRounding(SpecValue(part, "rounding", "stochastic"), &format));
  EQ_RETURN_IF_ERROR(ParseModifiers(spec.modifiers, &format));
  if (parsed.fit) {
    format.family = parsed.may_lack_zero() ? LevelFamily::kZeroless : LevelFamily::kExplicit;
    format.levels = UniformLevels(format.bits);
  }
  return parsed;
}

}  // namespace

Result<ElasticSpec> ParseElasticSpec(const Spec& spec) {
  Result<ElasticSpec> parsed = ParseValues(spec);
  if (parsed.ok()) return parsed;
  return InvalidArgument("codec '" + spec.codec.name + "': " + parsed.status().message());
}

std::string_view CodingText(IndexCoding coding) {
  switch (coding) {
    case IndexCoding::kRans:
      return "|rans";
    case IndexCoding::kElias:
      return "|elias";
    default:
      return "";
  }
}

std::string ElasticSpecText(const ElasticSpec& spec) {
  const ElasticFormat& format = spec.format;
  return "elastic:bits=" + std::to_string(format.bits) + ",levels=" + LevelsText(spec) +
         ",norm=" + NormText(format.norm) + ",bucket=" + std::to_string(format.bucket) +
         ",rounding=" + (format.rounding == Rounding::kDither ? "dither" : "stochastic") +
         std::string(CodingText(format.coding));
}

void ResolveRatio(size_t length, ElasticFormat* format) {
  const double d = length == 0 ? 1 : static_cast<double>(length);
  format->p = OptimalRatio(InnerLevels(format->bits), d, OrderOf(format->norm));
  format->levels = ExponentialLevels(format->bits, format->p).value();
}

CodecInfo ElasticInfo() {
  return {
      "elastic",
      "elastic:bits=4,levels=fit,norm=linf,bucket=512,rounding=stochastic",
      CodecClass::kUnbiased,
      "ElastiQuant: each bucket's norm, and a sign and a level for each coordinate",
      {{"bits", "4", "2 to 8: bits of a code, its sign included"},
       {"levels", "fit",
        "fit (least variance for each message), uniform (the default before |rans and "
        "|elias), exp, or a list that ends with 1, such as 0.1/0.3/1"},
       {"p", "",
        "of levels=exp, which it implies: the ratio of neighbouring levels, 0 to 1, or "
        "auto (the default) for the least variance bound"},
       {"norm", "linf", "l1, l2, linf, or l<q> with q >= 1"},
       {"bucket", "512", "coordinates that share a norm; 0: the whole message"},
       {"rounding", "stochastic", "stochastic, or dither (levels=uniform, half the variance)"}},
      {"rans", "elias"}};
}

}  // namespace elastiquant
