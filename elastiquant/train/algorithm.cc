#include "elastiquant/train/algorithm.h"

#include <cmath>
#include <limits>
#include <map>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/spec.h"
#include "elastiquant/policy/worker_sparsity.h"

namespace elastiquant {
namespace {

const std::map<std::string_view, AlgorithmKind>& Kinds() {
  static const std::map<std::string_view, AlgorithmKind> kinds = {
      {"allreduce", AlgorithmKind::kAllReduce},
      {"ddp", AlgorithmKind::kAllReduce},
      {"onebit-adam", AlgorithmKind::kOneBitAdam},
      {"zeroone-adam", AlgorithmKind::kZeroOneAdam},
      {"demo", AlgorithmKind::kDemo},
      {"local-sgd", AlgorithmKind::kLocalSgd},
      {"diloco", AlgorithmKind::kDiLoCo},
      {"sparseloco", AlgorithmKind::kSparseLoCo},
      {"delayed", AlgorithmKind::kDelayed},
      {"lag-wk", AlgorithmKind::kLagWk},
      {"lag-ps", AlgorithmKind::kLagPs},
      {"laq", AlgorithmKind::kLaq},
      {"lasg", AlgorithmKind::kLasg},
      {"quantised-data", AlgorithmKind::kQuantisedData},
      {"uniform", AlgorithmKind::kSparsity},
      {"dagc-r", AlgorithmKind::kSparsity},
      {"dagc-a", AlgorithmKind::kSparsity},
      {"accordion", AlgorithmKind::kSparsity}};
  return kinds;
}

// Where the value of a parameter goes: one of the pointers is set.
struct Parameter {
  int64_t* count = nullptr;
  double* share = nullptr;  // in [0, 1)
  double* rate = nullptr;   // above 0
  int64_t least = 1;        // of a count
  int64_t most = std::numeric_limits<int64_t>::max();
};

std::map<std::string_view, Parameter> LazyParametersOf(Algorithm& a) {
  a.history = 10;
  a.silence = 100;
  a.xi = .1;
  if (a.kind == AlgorithmKind::kLagPs) a.xi = 1;
  if (a.kind == AlgorithmKind::kLaq) a.xi = .08;
  return {{"history", {.count = &a.history, .most = 1000}},
          {"xi", {.rate = &a.xi}},
          {"silence", {.count = &a.silence, .least = 0}}};
}

std::map<std::string_view, Parameter> GossipParametersOf(Algorithm& a) {
  if (a.gossip == GossipKind::kChoco) {
    a.delay = 0;
    return {{"delay", {.count = &a.delay, .least = 0, .most = 1}}};
  }
  if (a.gossip != GossipKind::kNoLoCo) return {};
  a.outer_rate = .7;
  a.outer_momentum = .3;
  return {{"lr", {.rate = &a.outer_rate}}, {"momentum", {.share = &a.outer_momentum}}};
}

std::map<std::string_view, Parameter> ParametersOf(Algorithm& a) {
  switch (a.kind) {
    case AlgorithmKind::kAllReduce:
    case AlgorithmKind::kSparsity:  // has a parser of its own
      return {};
    case AlgorithmKind::kOneBitAdam:
      a.freeze = 100;
      return {{"freeze", {.count = &a.freeze}}};
    case AlgorithmKind::kZeroOneAdam:
      a.freeze = std::numeric_limits<int64_t>::max();
      a.growth = 16;
      return {{"freeze", {.count = &a.freeze}}, {"growth", {.count = &a.growth}}};
    case AlgorithmKind::kLocalSgd:
      return {{"delay", {.count = &a.delay, .least = 0}}, {"mix", {.share = &a.mix}}};
    case AlgorithmKind::kDiLoCo:
      a.outer_rate = .7;
      a.outer_momentum = .9;
      return {{"lr", {.rate = &a.outer_rate}},
              {"momentum", {.share = &a.outer_momentum}},
              {"delay", {.count = &a.delay, .least = 0}},
              {"mix", {.share = &a.mix}},
              {"eager", {.count = &a.eager, .least = 0, .most = 1}}};
    case AlgorithmKind::kSparseLoCo:
      return {{"lr", {.rate = &a.outer_rate}}};
    case AlgorithmKind::kDelayed:
      a.delay = 4;
      return {{"delay", {.count = &a.delay, .least = 0, .most = 60}}};
    case AlgorithmKind::kLagWk:
    case AlgorithmKind::kLagPs:
    case AlgorithmKind::kLaq:
    case AlgorithmKind::kLasg:
      return LazyParametersOf(a);
    case AlgorithmKind::kQuantisedData: {
      const auto flag = [](int64_t* value) {
        return Parameter{.count = value, .least = 0, .most = 1};
      };
      return {{"cache", flag(&a.cache)},
              {"refine", flag(&a.refine)},
              {"central", flag(&a.central)},
              {"skip", {.share = &a.skipped}},
              {"unbiased", flag(&a.unbiased)}};
    }
    case AlgorithmKind::kGossip:
      return GossipParametersOf(a);
    case AlgorithmKind::kDemo:
      a.decay = .999;
      a.block = 64;
      a.top = 32;
      a.bits = 32;
      return {{"decay", {.share = &a.decay}},
              {"block", {.count = &a.block, .most = 4096}},
              {"top", {.count = &a.top}},
              {"bits", {.count = &a.bits}}};
  }
  return {};
}

std::string Listed(const auto& entries) {
  std::string list;
  for (const auto& [name, unused] : entries) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

Status SetValue(const std::string& owner, const std::string& key, std::string_view text,
                Parameter parameter) {
  if (parameter.count != nullptr) {
    const bool good = ParseNumber(text, parameter.count) &&
                      *parameter.count >= parameter.least && *parameter.count <= parameter.most;
    const bool bounded = parameter.most < std::numeric_limits<int64_t>::max();
    const std::string to = bounded ? " to " + std::to_string(parameter.most) : " on";
    return good ? Status::Ok()
                : BadValueOf(owner, key, text,
                             "whole numbers from " + std::to_string(parameter.least) + to);
  }
  if (parameter.rate != nullptr) {
    const bool good = ParseNumber(text, parameter.rate) && *parameter.rate > 0 &&
                      std::isfinite(*parameter.rate);
    return good ? Status::Ok() : BadValueOf(owner, key, text, "numbers above 0");
  }
  const bool good =
      ParseNumber(text, parameter.share) && *parameter.share >= 0 && *parameter.share < 1;
  return good ? Status::Ok() : BadValueOf(owner, key, text, "numbers in [0, 1)");
}

}  // namespace

Result<Algorithm> ParseAlgorithm(std::string_view text) {
  EQ_ASSIGN_OR_RETURN(const Spec spec, ParseSpec(text));
  const auto kind = Kinds().find(spec.codec.name);
  const auto gossip = GossipKinds().find(spec.codec.name);
  const bool is_gossip = gossip != GossipKinds().end();
  if ((kind == Kinds().end() && !is_gossip) || !spec.modifiers.empty()) {
    return InvalidArgument("algorithm '" + std::string(text) + "' is not known; valid are: " +
                           Listed(Kinds()) + ", " + Listed(GossipKinds()));
  }
  if (!is_gossip && kind->second == AlgorithmKind::kSparsity) {
    EQ_RETURN_IF_ERROR(policy::ParseSparsity(text).status());
    return Algorithm{.kind = AlgorithmKind::kSparsity};
  }
  const std::string owner = "algorithm '" + spec.codec.name + "'";
  Algorithm algorithm{.kind = is_gossip ? AlgorithmKind::kGossip : kind->second};
  if (is_gossip) algorithm.gossip = gossip->second;
  const auto parameters = ParametersOf(algorithm);
  for (const auto& [key, value] : spec.codec.pairs) {
    const auto found = parameters.find(key);
    if (found == parameters.end()) {
      return InvalidArgument(owner + " has no parameter '" + key + "'; it has " +
                             (parameters.empty() ? "none" : Listed(parameters)));
    }
    EQ_RETURN_IF_ERROR(SetValue(owner, key, value, found->second));
  }
  return algorithm;
}

namespace {

std::string_view GossipCodecOf(GossipKind kind) {
  switch (kind) {
    case GossipKind::kChoco:
      return "dither:bits=1";
    case GossipKind::kDcd:
    case GossipKind::kEcd:
    case GossipKind::kDeepSqueeze:
      return "qsgd:bits=8";
    default:
      return "fp32";
  }
}

}  // namespace

std::string_view GraphOf(GossipKind kind) {
  switch (kind) {
    case GossipKind::kD2:
      return "ring:lazy=1";
    case GossipKind::kDcd:
    case GossipKind::kEcd:
    case GossipKind::kDeepSqueeze:
    case GossipKind::kAdPsgd:
      return "ring";
    case GossipKind::kNoLoCo:
      return "random-pairs";
    default:
      return "one-peer-exponential";
  }
}

std::string_view CodecOf(const Algorithm& algorithm) {
  switch (algorithm.kind) {
    case AlgorithmKind::kAllReduce:
    case AlgorithmKind::kSparsity:  // it depends on how much is sent: UsualCodecOf
      return "";
    case AlgorithmKind::kGossip:
      return GossipCodecOf(algorithm.gossip);
    case AlgorithmKind::kOneBitAdam:
    case AlgorithmKind::kZeroOneAdam:
      return "efsign|ef:lr=outside";
    case AlgorithmKind::kLocalSgd:
    case AlgorithmKind::kDiLoCo:
    case AlgorithmKind::kDelayed:
    case AlgorithmKind::kQuantisedData:  // of refinements
      return "dither:bits=1";
    case AlgorithmKind::kSparseLoCo:
      return "chunktopk|ef:decay=0.95";
    case AlgorithmKind::kLaq:
      return "laq:bits=4";
    case AlgorithmKind::kLagWk:
    case AlgorithmKind::kLagPs:
    case AlgorithmKind::kLasg:
      return "fp32";
    // All that is not zero, which is all that was chosen.
    case AlgorithmKind::kDemo:
      return "threshold:value=1e-38,bits=exact";
  }
  return "";
}

int64_t EveryOf(const Algorithm& algorithm) {
  const AlgorithmKind kind = algorithm.kind;
  if (kind == AlgorithmKind::kDelayed || kind == AlgorithmKind::kSparsity) return 1;
  if (algorithm.is_gossip()) return algorithm.gossip == GossipKind::kNoLoCo ? 32 : 1;
  return kind == AlgorithmKind::kSparseLoCo ? 30 : 32;
}

// Lu et al., "Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam", ICLR
// 2023, section 4: the second moments change at steps k_0 = 0, k_(j+1) = k_j + 2^(j / growth).
bool Algorithm::IsExact(int64_t step) const {
  if (kind == AlgorithmKind::kOneBitAdam) return step < freeze;
  if (kind != AlgorithmKind::kZeroOneAdam || step >= freeze) return false;
  int64_t next = 0, interval = 1;
  while (next < step) {
    const int64_t round = growth * interval;  // so many steps have this interval
    if (step - next < round) return (step - next) % interval == 0;
    next += round;
    interval *= 2;
  }
  return true;
}

}  // namespace elastiquant
