#include "elastiquant/cli/theory_report.h"

#include <algorithm>
#include <cmath>

#include "elastiquant/base/number.h"
#include "elastiquant/cli/codec_analysis.h"
#include "elastiquant/cli/codec_bench.h"
#include "elastiquant/codec/elastic/elastic.h"
#include "elastiquant/theory/code_length.h"
#include "elastiquant/theory/rate_distortion.h"
#include "elastiquant/theory/worst_case.h"

namespace elastiquant::cli {
namespace {

constexpr uint32_t kMostInBucket = 1 << 26;
constexpr size_t kGaussianValues = size_t{1} << 17;
constexpr int kGaussianDraws = 4;

std::string ListText(const LevelSet& levels) {
  std::string text;
  for (const float level : levels.span().subspan(1)) {
    text += (text.empty() ? "" : "/") + NumberText(level);
  }
  return text;
}

std::string Spec(const TheorySetting& s, const std::string& levels) {
  std::string spec = "elastic:bits=" + std::to_string(s.bits);
  spec += ",levels=" + levels;
  spec += ",p=" + s.p;
  spec += ",norm=" + s.norm;
  spec += ",bucket=" + std::to_string(s.bucket);
  return spec;
}

// The order of a norm, checked as codecs do.
Result<double> OrderOfText(const TheorySetting& setting) {
  TheorySetting plain = setting;
  plain.p = "auto";
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(Spec(plain, "uniform")));
  return OrderOf(ElasticFormatFor(*codec, 1)->norm);
}

Result<RatioChoice> Choice(float p, const TheoryReport& report) {
  EQ_ASSIGN_OR_RETURN(const LevelSet levels, ExponentialLevels(report.format.bits, p));
  return RatioChoice{p, VarianceBound(levels, report.d, report.q),
                     theory::WorstCaseVariance(levels, report.d, report.q)};
}

Status AddRatios(TheoryReport* report) {
  const int bits = report->format.bits;
  if (InnerLevels(bits) == 0) return Status::Ok();
  const float rule = OptimalRatio(InnerLevels(bits), report->d, report->q);
  EQ_ASSIGN_OR_RETURN(report->rule, Choice(rule, *report));
  const float exact = theory::ExactOptimalRatio(bits, report->d, report->q);
  EQ_ASSIGN_OR_RETURN(report->exact, Choice(exact, *report));
  return Status::Ok();
}

void AddVariance(TheoryReport* report) {
  const LevelSet& levels = report->format.levels;
  const double d = report->d, q = report->q;
  report->terms = theory::VarianceTermsOf(levels, d, q);
  report->alq_bound = theory::AlqVarianceBound(levels, d, q);
  report->worst_case = theory::WorstCaseVariance(levels, d, q);
  report->vector = theory::FindWorstVector(levels, d, q);
  report->equal_vector = theory::EqualVectorVariance(levels.values[1], d, q);
  const auto minimax = theory::FindMinimaxLevels(report->format.bits, d, q);
  if (minimax.ok()) report->minimax = *minimax;
}

void AddLengths(TheoryReport* report) {
  const ElasticFormat& format = report->format;
  const double d = report->d, q = report->q;
  report->nonzeros = theory::NonzerosBound(format.levels.values[1], d, q);
  report->code_length_bits = 32 + theory::EliasBound(format.levels, d, q);
  report->fixed_bits = 32 + format.bits * d;
  report->gaussian_limit = theory::GaussianLimit(report->fixed_bits / d);
  if (format.family == LevelFamily::kExponential && format.p == 0.5f && q == 2) {
    report->published_code_length = theory::PublishedCodeLength(InnerLevels(format.bits), d);
    report->explicit_code_length = theory::ExplicitCodeLength(InnerLevels(format.bits), d);
  }
}

// The p of a family of curves: a setting whose levels depend on bits.
Result<TheorySetting> FamilySetting(const std::string& family, TheorySetting setting,
                                    double q) {
  setting.p = "auto";
  setting.levels = family == "uniform" || family == "minimax" ? family : "exp";
  if (family == "exp p=1/2") setting.p = "0.5";
  if (family == "elastic, exact p") {
    setting.p = NumberText(
        theory::ExactOptimalRatio(setting.bits, static_cast<double>(setting.bucket), q));
  }
  return setting;
}

Result<CurvePoint> MakePoint(const TheorySetting& setting) {
  EQ_ASSIGN_OR_RETURN(const std::string spec, TheorySpec(setting));
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(spec));
  const auto format = ElasticFormatFor(*codec, setting.bucket);
  const double d = static_cast<double>(setting.bucket), q = OrderOf(format->norm);
  CurvePoint point;
  point.bits = setting.bits;
  point.bits_per_coordinate = setting.bits + 32 / d;
  point.variance_bound = VarianceBound(format->levels, d, q);
  point.worst_case = theory::WorstCaseVariance(format->levels, d, q);
  EQ_ASSIGN_OR_RETURN(point.gaussian, MeasureOnGaussian(spec, setting.bucket));
  return point;
}

}  // namespace

Result<std::string> TheorySpec(const TheorySetting& setting) {
  if (setting.bucket == 0 || setting.bucket > kMostInBucket) {
    return InvalidArgument("--bucket must be from 1 to " + std::to_string(kMostInBucket) +
                           ": the report measures on as many random values");
  }
  std::string levels = setting.levels;
  if (levels == "fit") {
    return InvalidArgument(
        "levels=fit depends on the message: give exp, uniform, minimax or a list here");
  }
  std::ranges::replace(levels, ',', '/');
  if (levels == "minimax") {
    EQ_ASSIGN_OR_RETURN(const double q, OrderOfText(setting));
    EQ_ASSIGN_OR_RETURN(
        const auto found,
        theory::FindMinimaxLevels(setting.bits, static_cast<double>(setting.bucket), q));
    levels = ListText(found.levels);
  }
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(Spec(setting, levels)));
  return codec->spec();
}

Result<double> MeasureOnGaussian(const std::string& spec, uint32_t bucket) {
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(spec));
  const size_t buckets = std::max<size_t>(1, kGaussianValues / bucket);
  const std::vector<float> values = GaussianVector(buckets * bucket, 1);
  Workspace work;
  AnalysisOptions options;
  options.draws = kGaussianDraws;
  EQ_ASSIGN_OR_RETURN(const Analysis analysis, Analyse(*codec, values, options, work));
  return analysis.nmse;
}

Result<TheoryReport> MakeTheoryReport(const TheorySetting& setting) {
  TheoryReport report;
  EQ_ASSIGN_OR_RETURN(report.spec, TheorySpec(setting));
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(report.spec));
  report.format = *ElasticFormatFor(*codec, setting.bucket);
  report.d = static_cast<double>(setting.bucket);
  report.q = OrderOf(report.format.norm);
  AddVariance(&report);
  AddLengths(&report);
  EQ_RETURN_IF_ERROR(AddRatios(&report));
  EQ_ASSIGN_OR_RETURN(report.gaussian, MeasureOnGaussian(report.spec, setting.bucket));
  return report;
}

Result<std::vector<Curve>> MakeCurves(const TheorySetting& setting) {
  EQ_ASSIGN_OR_RETURN(const double q, OrderOfText(setting));
  std::vector<Curve> curves;
  for (const char* family :
       {"uniform", "exp p=1/2", "elastic", "elastic, exact p", "minimax"}) {
    const bool has_minimax = (q == 1 || q == 2 || std::isinf(q)) && setting.bucket > 1;
    if (family == std::string("minimax") && !has_minimax) continue;
    Curve curve{family, {}};
    for (int bits = 2; bits <= 8; ++bits) {
      TheorySetting at = setting;
      at.bits = bits;
      EQ_ASSIGN_OR_RETURN(at, FamilySetting(family, at, q));
      EQ_ASSIGN_OR_RETURN(const CurvePoint point, MakePoint(at));
      curve.points.push_back(point);
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

}  // namespace elastiquant::cli
