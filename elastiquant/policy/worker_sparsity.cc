#include "elastiquant/policy/worker_sparsity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/spec.h"

namespace elastiquant::policy {
namespace {

const std::map<std::string_view, SparsityKind>& SparsityKinds() {
  static const std::map<std::string_view, SparsityKind> kinds = {
      {"uniform", SparsityKind::kUniform},
      {"dagc-r", SparsityKind::kDagcR},
      {"dagc-a", SparsityKind::kDagcA},
      {"accordion", SparsityKind::kAccordion}};
  return kinds;
}

std::string KeysOf(SparsityKind kind) {
  switch (kind) {
    case SparsityKind::kUniform:
      return "bits";
    case SparsityKind::kDagcR:
      return "rule, exponent, bits";
    case SparsityKind::kDagcA:
      return "exponent, bits";
    case SparsityKind::kAccordion:
      return "least, most, change, bits";
  }
  return "";
}

// Where the number of a key goes, or null if the algorithm has no such key.
double* NumberOf(Sparsity& s, std::string_view key) {
  const bool has_exponent = s.kind == SparsityKind::kDagcR || s.kind == SparsityKind::kDagcA;
  if (key == "exponent" && has_exponent) return &s.exponent;
  if (s.kind != SparsityKind::kAccordion) return nullptr;
  if (key == "least") return &s.least;
  if (key == "most") return &s.most;
  return key == "change" ? &s.change : nullptr;
}

bool IsValid(std::string_view key, double value) {
  if (!std::isfinite(value)) return false;
  if (key == "exponent") return value >= 0 && value <= 10;
  return value > 0 && (value <= 1 || key == "change");
}

Status SetSparsityKey(const std::string& owner, const std::string& key,
                      const std::string& value, Sparsity* s) {
  if (key == "bits") {
    s->bits = value;  // Make has the codec check it
    return {};
  }
  if (key == "rule" && s->kind == SparsityKind::kDagcR) {
    const auto rule = ParseRatioRule(value);
    if (!rule.ok()) return InvalidArgument(owner + ": " + rule.status().message());
    s->rule = *rule;
    return {};
  }
  double* number = NumberOf(*s, key);
  if (number == nullptr) {
    return InvalidArgument(owner + " has no parameter '" + key + "'; it has " +
                           KeysOf(s->kind));
  }
  if (ParseNumber(value, number) && IsValid(key, *number)) return {};
  return BadValueOf(owner, key, value,
                    key == "exponent" ? "numbers from 0 to 10"
                    : key == "change" ? "numbers above 0"
                                      : "ratios above 0 and at most 1");
}

}  // namespace

Result<Sparsity> ParseSparsity(std::string_view text) {
  EQ_ASSIGN_OR_RETURN(const Spec spec, ParseSpec(text));
  const auto kind = SparsityKinds().find(spec.codec.name);
  if (kind == SparsityKinds().end() || !spec.modifiers.empty()) {
    return InvalidArgument("algorithm '" + std::string(text) +
                           "' is not known; valid are: uniform, dagc-r, dagc-a, accordion");
  }
  Sparsity sparsity;
  sparsity.kind = kind->second;
  const std::string owner = "algorithm '" + spec.codec.name + "'";
  for (const auto& [key, value] : spec.codec.pairs) {
    EQ_RETURN_IF_ERROR(SetSparsityKey(owner, key, value, &sparsity));
  }
  return sparsity;
}

Result<std::unique_ptr<WorkerSparsity>> WorkerSparsity::Make(const Sparsity& sparsity,
                                                             double ratio,
                                                             std::span<const double> volumes,
                                                             size_t worker) {
  if (worker >= volumes.size()) {
    return InvalidArgument("worker " + std::to_string(worker) + " has no volume: there are " +
                           std::to_string(volumes.size()));
  }
  const bool by_volume = sparsity.kind == SparsityKind::kDagcR;
  EQ_ASSIGN_OR_RETURN(std::vector<double> ratios,
                      WorkerRatios(by_volume ? sparsity.rule : RatioRule::kUniform, ratio,
                                   volumes, by_volume ? sparsity.exponent : kDagcExponent));
  std::unique_ptr<WorkerSparsity> made(new WorkerSparsity(sparsity, ratio));
  if (sparsity.kind == SparsityKind::kAccordion) {
    const double most = sparsity.most > 0 ? sparsity.most : ratio;
    const double least = sparsity.least > 0 ? sparsity.least : most / 10;
    if (least > most) {
      return InvalidArgument("algorithm 'accordion' has least=" + NumberText(least) +
                             " above most=" + NumberText(most) +
                             ": the ratio of quiet rounds is the smaller one");
    }
    made->accordion_ = Accordion({.least = least, .most = most, .threshold = sparsity.change});
    ratios = std::vector<double>(volumes.size(), most);
    ratios.push_back(least);
  }
  made->own_ratio_ = ratios[worker];
  if (sparsity.kind == SparsityKind::kDagcA) {
    EQ_ASSIGN_OR_RETURN(const std::vector<double> relative,
                        RelativeThresholds(volumes, sparsity.exponent));
    made->relative_threshold_ = relative[worker];
  }
  EQ_RETURN_IF_ERROR(made->MakeLadder(ratios));
  return made;
}

Status WorkerSparsity::MakeLadder(std::span<const double> ratios) {
  std::set<std::string> specs;
  for (const double ratio : ratios) specs.insert(TopKOf(sparsity_, ratio));
  if (sparsity_.kind == SparsityKind::kDagcA) specs.insert(Threshold(1));
  for (const std::string& spec : specs) {
    EQ_RETURN_IF_ERROR(MakeCodec(spec).status());
    ladder_.push_back(spec);
  }
  return {};
}

std::string TopKOf(const Sparsity& sparsity, double ratio) {
  return "topk:ratio=" + NumberText(ratio) + ",bits=" + sparsity.bits + "|ef";
}

std::string WorkerSparsity::Threshold(double value) const {
  return "threshold:value=" + NumberText(static_cast<float>(value)) +
         ",bits=" + sparsity_.bits + "|ef";
}

std::optional<double> WorkerSparsity::threshold() const {
  if (!tracker_) return std::nullopt;
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  return std::clamp(tracker_->threshold() * relative_threshold_, kLeast, kMost);
}

std::string WorkerSparsity::codec() const {
  const std::optional<double> value = threshold();
  return value ? Threshold(*value) : TopKOf(sparsity_, own_ratio_);
}

bool WorkerSparsity::needs_quantile() const {
  return sparsity_.kind == SparsityKind::kDagcA && !tracker_;
}

// The quantile of a worker would be its threshold if all were to send the same. In logarithms,
// because relative thresholds are factors; and a first estimate is all that is needed.
AgreedRound WorkerSparsity::Report(const OwnRound& own) const {
  AgreedRound report;
  report.sent = own.sent;
  if (needs_quantile() && own.quantile > 0) {
    report.log_threshold = std::log(own.quantile / relative_threshold_);
  }
  return report;
}

void WorkerSparsity::Foresee(double norm) {
  if (sparsity_.kind != SparsityKind::kAccordion || !std::isfinite(norm)) return;
  own_ratio_ = accordion_.Next(norm);
  has_foreseen_ = true;
}

void WorkerSparsity::Next(const OwnRound& own, const AgreedRound& agreed) {
  const bool foreseen = std::exchange(has_foreseen_, false);
  if (sparsity_.kind == SparsityKind::kAccordion && !foreseen) {
    own_ratio_ = accordion_.Next(own.norm);
  }
  if (sparsity_.kind != SparsityKind::kDagcA) return;
  if (tracker_) {
    tracker_->Observe(agreed.sent);
  } else if (std::isfinite(agreed.log_threshold)) {
    tracker_.emplace(ratio_, std::exp(agreed.log_threshold));
  }
}

std::vector<double> WorkerSparsity::SaveState() const {
  if (sparsity_.kind == SparsityKind::kAccordion) {
    std::vector<double> state = accordion_.SaveState();
    state.insert(state.begin(), own_ratio_);
    return state;
  }
  return tracker_ ? tracker_->SaveState() : std::vector<double>{};
}

Status WorkerSparsity::LoadState(std::span<const double> state) {
  if (sparsity_.kind == SparsityKind::kAccordion) {
    if (state.empty() || !(state[0] > 0 && state[0] <= 1)) {
      return CorruptData("the state of accordion has no ratio");
    }
    EQ_RETURN_IF_ERROR(accordion_.LoadState(state.subspan(1)));
    own_ratio_ = state[0];
    return {};
  }
  if (state.empty()) {
    tracker_.reset();
    return {};
  }
  if (sparsity_.kind != SparsityKind::kDagcA) {
    return CorruptData("there is a state of an algorithm that has none");
  }
  ThresholdTracker tracker(ratio_, 1);
  EQ_RETURN_IF_ERROR(tracker.LoadState(state));
  tracker_ = tracker;
  return {};
}

}  // namespace elastiquant::policy
