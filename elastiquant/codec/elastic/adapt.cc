#include "elastiquant/codec/elastic/adapt.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/spec.h"

namespace elastiquant {
namespace {

constexpr size_t kMostBuckets = 64;

// Levels far enough apart for fp32, wherever they are.
void KeepApart(std::span<double> levels) {
  constexpr double kGap = 1e-6;
  for (size_t j = 1; j + 1 < levels.size(); ++j) {
    levels[j] = std::max(levels[j], levels[j - 1] + kGap);
  }
  for (size_t j = levels.size() - 2; j > 0; --j) {
    levels[j] = std::min(levels[j], levels[j + 1] - kGap);
  }
}

double Descend(const MagnitudeModel& model, std::span<double> levels) {
  // What moves at one end takes about as many sweeps as there are levels to be felt at the
  // other.
  constexpr int kSweeps = 200;
  double objective = LevelObjective(model, levels);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t j = 1; j + 1 < levels.size(); ++j) {
      levels[j] = BestLevel(model, levels[j - 1], levels[j + 1]);
    }
    const double before = objective;
    objective = LevelObjective(model, levels);
    if (objective > before * (1 - 1e-7)) break;
  }
  return objective;
}

double PowerOf(double p, size_t k) { return std::pow(p, static_cast<double>(k)); }

// A step down the slope that is halved until it leads down.
double DescendRatio(const MagnitudeModel& model, size_t last, double p) {
  constexpr double kRate = 0.7, kLeast = 0.02, kMost = 0.98;
  constexpr int kEpochs = 40;
  double objective = RatioObjective(model, last, p);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    // Relative to the objective, whose size depends on the length of the buckets.
    const double slope = RatioDerivative(model, last, p) / std::max(objective, 1e-300);
    double step = std::clamp(kRate * slope, -0.1, 0.1), next = p, at = objective;
    for (int halving = 0; halving < 20; ++halving, step /= 2) {
      next = std::clamp(p - step, kLeast, kMost);
      at = RatioObjective(model, last, next);
      if (at < objective) break;
    }
    if (!(at < objective)) break;
    p = next;
    objective = at;
  }
  return p;
}

// The value of `key`, to change; added if the part has none.
std::string& ValueOf(SpecPart& part, const std::string& key) {
  const auto same = [&](const auto& pair) { return pair.first == key; };
  const auto found = std::ranges::find_if(part.pairs, same);
  if (found != part.pairs.end()) return found->second;
  return part.pairs.emplace_back(key, "").second;
}

std::string TextOf(const SpecPart& part) {
  std::string text = part.name;
  for (const auto& [key, value] : part.pairs) {
    text.append(text.size() == part.name.size() ? ":" : ",").append(key);
    text.append("=").append(value);
  }
  return text;
}

std::string TextOf(const Spec& spec) {
  std::string text = TextOf(spec.codec);
  for (const SpecPart& modifier : spec.modifiers) text += "|" + TextOf(modifier);
  return text;
}

template <typename T>
T NumberOf(const SpecPart& part, std::string_view key) {
  T value{};
  ParseNumber(SpecValue(part, key, ""), &value);
  return value;
}

void AdaptLevels(const MagnitudeModel& model, SpecPart& part) {
  const int bits = NumberOf<int>(part, "bits");
  const std::vector<double> levels = FitLevels(model, (size_t{1} << (bits - 1)) - 2);
  std::string text;
  for (size_t j = 1; j < levels.size(); ++j) {
    text += (text.empty() ? "" : "/") + NumberText(static_cast<float>(levels[j]));
  }
  ValueOf(part, "levels") = text;
}

void AdaptRatio(const MagnitudeModel& model, SpecPart& part) {
  const size_t last = (size_t{1} << (NumberOf<int>(part, "bits") - 1)) - 1;
  const double previous = NumberOf<double>(part, "p");  // 0 if it is "auto"
  const double p = FitRatio(model, last, previous > 0 ? previous : 0.5);
  ValueOf(part, "p") = NumberText(std::round(static_cast<float>(p) * 1e5f) / 1e5f);
}

}  // namespace

double LevelObjective(const MagnitudeModel& model, std::span<const double> levels) {
  double sum = 0;
  Moments before = model.Below(levels[0]);
  for (size_t j = 0; j + 1 < levels.size(); ++j) {
    const Moments after = model.Below(levels[j + 1]);
    sum += RoundingVariance(after - before, levels[j], levels[j + 1]);
    before = after;
  }
  return sum;
}

double BestLevel(const MagnitudeModel& model, double a, double c) {
  const Moments to_c = model.Below(c);
  const Moments between = to_c - model.Below(a);
  return model.Quantile(to_c.mass - (between.first - a * between.mass) / (c - a), a, c);
}

std::vector<double> FitLevels(const MagnitudeModel& model, size_t inner) {
  std::vector<double> best;
  double least = 0;
  for (int start = 0; start < 3; ++start) {
    std::vector<double> levels(inner + 2);
    const double steps = static_cast<double>(inner + 1);
    for (size_t j = 1; j <= inner; ++j) {
      const double share = static_cast<double>(j) / steps;
      levels[j] = start == 0   ? model.Quantile(share, 0, 1)
                  : start == 1 ? share
                               : PowerOf(0.5, inner + 1 - j);
    }
    levels.back() = 1;
    KeepApart(levels);
    const double objective = Descend(model, levels);
    if (best.empty() || objective < least) {
      best = levels;
      least = objective;
    }
  }
  KeepApart(best);
  return best;
}

double RatioObjective(const MagnitudeModel& model, size_t last, double p) {
  const double smallest = PowerOf(p, last);
  Moments below = model.Below(smallest);
  // Between -l and l: (l - r)(r + l).
  double sum = smallest * smallest * below.mass - below.second;
  for (size_t j = last; j > 0; --j) {
    const double a = PowerOf(p, j), c = PowerOf(p, j - 1);
    const Moments to_c = model.Below(c);
    sum += RoundingVariance(to_c - below, a, c);
    below = to_c;
  }
  return sum;
}

double RatioDerivative(const MagnitudeModel& model, size_t last, double p) {
  const double s = static_cast<double>(last);
  Moments below = model.Below(PowerOf(p, last));
  double sum = last == 0 ? 0 : 2 * s * PowerOf(p, 2 * last - 1) * below.mass;
  for (size_t i = last; i > 0; --i) {
    const double j = static_cast<double>(i - 1);  // between p^(j+1) and p^j
    const Moments to_c = model.Below(PowerOf(p, i - 1));
    const Moments m = to_c - below;
    const double by_r = (i == 1 ? 0 : j * PowerOf(p, i - 2)) + (j + 1) * PowerOf(p, i - 1);
    sum += by_r * m.first - (2 * j + 1) * PowerOf(p, 2 * (i - 1)) * m.mass;
    below = to_c;
  }
  return sum;
}

double FitRatio(const MagnitudeModel& model, size_t last, double previous) {
  double best = previous, least = RatioObjective(model, last, previous);
  for (const double start : {previous, .1, .2, .3, .4, .5, .8, .9}) {
    const double p = DescendRatio(model, last, start);
    const double objective = RatioObjective(model, last, p);
    if (objective >= least) continue;
    best = p;
    least = objective;
  }
  return best;
}

bool IsAdaptive(const Codec& codec) {
  const auto spec = ParseSpec(codec.spec());
  return spec.ok() && HasAdaptedLevels(spec->codec);
}

Result<std::string> AdaptSpec(const Codec& codec,
                              std::span<const std::span<const float>> gradients) {
  if (!IsAdaptive(codec)) {
    return InvalidArgument("codec '" + codec.spec() +
                           "' has no levels to adapt; valid: alq, amq");
  }
  EQ_ASSIGN_OR_RETURN(Spec spec, ParseSpec(codec.spec()));
  SpecPart& part = spec.codec;
  const NormKind norm = SpecValue(part, "norm", "") == "l2" ? NormKind::kL2 : NormKind::kLinf;
  const auto statistics =
      GatherStatistics(gradients, {norm, 0}, NumberOf<size_t>(part, "bucket"), kMostBuckets);
  if (statistics.empty()) return codec.spec();
  const MagnitudeModel model(statistics);
  part.name == "alq" ? AdaptLevels(model, part) : AdaptRatio(model, part);
  // What came out must be a codec's spec.
  EQ_ASSIGN_OR_RETURN(const auto adapted, MakeCodec(TextOf(spec)));
  return adapted->spec();
}

}  // namespace elastiquant
