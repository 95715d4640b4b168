#include "elastiquant/theory/communication_cost.h"

#include <algorithm>
#include <cmath>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/bucket/shared_scale.h"
#include "elastiquant/codec/elastic/elastic.h"
#include "elastiquant/theory/codec_bounds.h"
#include "elastiquant/theory/worst_case.h"

namespace elastiquant::theory {
namespace {

// The values of one frame.
size_t FrameValues(Exchange exchange, const Cluster& cluster) {
  const bool cut = exchange == Exchange::kTwoPhase || exchange == Exchange::kIntegerSum;
  if (!cut) return cluster.parameters;
  const auto workers = static_cast<size_t>(cluster.workers);
  return (cluster.parameters + workers - 1) / workers;
}

// How often a worker sends to all others.
int PhasesOf(Exchange exchange) {
  return exchange == Exchange::kIntegerSum ? 3 : exchange == Exchange::kTwoPhase ? 2 : 1;
}

// frame_bits: of `values` values.
double StepBitsOf(const Codec& codec, double frame_bits, size_t values, int workers) {
  const int peers = workers - 1;
  if (codec.exchange() != Exchange::kIntegerSum) {
    return PhasesOf(codec.exchange()) * peers * frame_bits;
  }
  const SharedScale& codes = *codec.shared_scale();
  const double scales = 32.0 * workers * static_cast<double>(codes.ScaleCount(values));
  const double mean = 8.0 * static_cast<double>(codes.MaxMeanBytes(values, workers));
  return peers * (scales + frame_bits + mean);
}

// With more parameters the bytes of a message could not be counted.
constexpr size_t kMostParameters = size_t{1} << 48;

Status CheckPositive(const std::string& name, double value) {
  if (std::isfinite(value) && value > 0) return Status::Ok();
  return InvalidArgument(name + " is " + NumberText(value) +
                         ", but must be a finite number above 0");
}

Status CheckDuration(const std::string& name, double seconds) {
  if (std::isfinite(seconds) && seconds >= 0) return Status::Ok();
  return InvalidArgument(name + " is " + NumberText(seconds) +
                         " s, but must be a finite number, 0 or more");
}

Status Check(const SgdProblem& problem, const Cluster& cluster, double target) {
  EQ_RETURN_IF_ERROR(CheckPositive("the target", target));
  EQ_RETURN_IF_ERROR(CheckPositive("the smoothness", problem.smoothness));
  EQ_RETURN_IF_ERROR(CheckPositive("the distance", problem.distance));
  EQ_RETURN_IF_ERROR(CheckPositive("the noise", problem.noise));
  EQ_RETURN_IF_ERROR(CheckPositive("the second moment", problem.second_moment));
  if (problem.second_moment < problem.noise) {
    return InvalidArgument("the second moment of gradients is at least their noise");
  }
  if (cluster.workers < 2 || cluster.parameters < 1 || cluster.parameters > kMostParameters) {
    return InvalidArgument("there must be at least 2 workers, and 1 to " +
                           std::to_string(kMostParameters) + " parameters");
  }
  EQ_RETURN_IF_ERROR(CheckPositive("the rate of the link", cluster.link.bits_per_second));
  EQ_RETURN_IF_ERROR(CheckDuration("the delay of the link", cluster.link.delay_seconds));
  return CheckDuration("the time that a step computes", cluster.compute_seconds);
}

Status CheckWorkers(const Codec& codec, int workers) {
  if (codec.exchange() != Exchange::kIntegerSum || workers <= SharedScale::kMaxWorkers) {
    return Status::Ok();
  }
  return InvalidArgument("integer sums take up to " + std::to_string(SharedScale::kMaxWorkers) +
                         " workers");
}

std::vector<std::string> LevelSpecs(int bits, size_t bucket, const std::string& norm) {
  std::vector<std::string> specs = {"levels=exp", "levels=uniform"};
  if (bits > 2) {
    const double q = norm == "l2" ? 2 : INFINITY;
    const float p = ExactOptimalRatio(bits, static_cast<double>(bucket), q);
    specs.push_back("levels=exp,p=" + NumberText(p));
  }
  return specs;
}

std::string SettingSpec(int bits, const std::string& levels, const std::string& norm,
                        size_t bucket) {
  return std::string("elastic:bits=")
      .append(std::to_string(bits))
      .append(",")
      .append(levels)
      .append(",norm=")
      .append(norm)
      .append(",bucket=")
      .append(std::to_string(bucket));
}

std::vector<std::string> Settings() {
  std::vector<std::string> settings;
  for (int bits = 2; bits <= 8; ++bits) {
    for (const std::string norm : {"l2", "linf"}) {
      for (const size_t bucket : {64, 256, 512, 2048, 8192, 65536}) {
        for (const std::string& levels : LevelSpecs(bits, bucket, norm)) {
          settings.push_back(SettingSpec(bits, levels, norm, bucket));
          if (norm == "l2") settings.push_back(settings.back() + "|elias");
        }
      }
    }
  }
  return settings;
}

}  // namespace

double StepBits(const Codec& codec, const Cluster& cluster) {
  const size_t values = FrameValues(codec.exchange(), cluster);
  return StepBitsOf(codec, BoundsOf(codec, values).frame_bits, values, cluster.workers);
}

double StepSeconds(double step_bits, Exchange exchange, const Cluster& cluster) {
  const int phases = PhasesOf(exchange);
  return cluster.compute_seconds + step_bits / cluster.link.bits_per_second +
         phases * cluster.link.delay_seconds;
}

Result<Cost> CostOf(const std::string& spec, const SgdProblem& problem, const Cluster& cluster,
                    double target) {
  EQ_RETURN_IF_ERROR(Check(problem, cluster, target));
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(spec));
  const Exchange exchange = codec->exchange();
  const size_t values = FrameValues(exchange, cluster);
  const CodecBounds bounds = BoundsOf(*codec, values);
  EQ_RETURN_IF_ERROR(CheckWorkers(*codec, cluster.workers));
  const auto variance = exchange == Exchange::kIntegerSum
                            ? codec->shared_scale()->Among(cluster.workers)->NmseBound(values)
                            : PlannedVariance(bounds);
  const bool unbiased = codec->codec_class() == CodecClass::kUnbiased ||
                        codec->codec_class() == CodecClass::kLossless;
  if (!unbiased || !variance) {
    return InvalidArgument("codec '" + spec +
                           "' has no known variance: give an unbiased one, such as "
                           "elastic:bits=4");
  }
  Cost cost;
  cost.spec = codec->spec();
  cost.variance = *variance;
  cost.bits_per_coordinate = bounds.frame_bits / static_cast<double>(values);
  const double noise = NoiseOfMean(problem, *variance, cluster.workers, exchange);
  cost.steps = ConvexSteps(problem, noise, target);
  const double step_bits = StepBitsOf(*codec, bounds.frame_bits, values, cluster.workers);
  cost.bits = cost.steps * step_bits;
  cost.seconds = cost.steps * StepSeconds(step_bits, exchange, cluster);
  if (!std::isfinite(cost.bits) || !std::isfinite(cost.seconds)) {
    return InvalidArgument("the steps to a target of " + NumberText(target) +
                           " are too many to be counted: give a larger target");
  }
  return cost;
}

Result<std::vector<Cost>> RankSettings(const SgdProblem& problem, const Cluster& cluster,
                                       double target) {
  std::vector<Cost> costs;
  for (const std::string& spec : Settings()) {
    EQ_ASSIGN_OR_RETURN(Cost cost, CostOf(spec, problem, cluster, target));
    costs.push_back(std::move(cost));
  }
  std::ranges::stable_sort(costs, {}, &Cost::seconds);
  return costs;
}

}  // namespace elastiquant::theory
