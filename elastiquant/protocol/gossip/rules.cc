#include "elastiquant/protocol/gossip/rules.h"

#include <algorithm>
#include <string>

namespace elastiquant {
namespace {

using Vector = std::vector<float>;

class Dpsgd final : public GossipRule {
 public:
  bool is_early() const override { return true; }
  void Propose(const Round& round, Vectors* shown) override {
    std::ranges::copy(round.x, (*shown)[0].begin());
  }
  void Absorb(const Round& round, const Vectors& shown, const Vectors& mixed,
              std::span<const float> /*replica*/, std::span<float> x) override {
    for (size_t e = 0; e < x.size(); ++e) x[e] = shown[0][e] + mixed[0][e] + round.moved[e];
  }
};

// CHOCO, push-sum and DeepSqueeze differ in what becomes of messages, and of weights.
class Moved : public GossipRule {
 public:
  void Propose(const Round& round, Vectors* shown) override {
    Vector& u = (*shown)[0];
    for (size_t e = 0; e < u.size(); ++e) u[e] = round.x[e] + round.moved[e];
  }
  void Absorb(const Round& /*round*/, const Vectors& shown, const Vectors& mixed,
              std::span<const float> /*replica*/, std::span<float> x) override {
    for (size_t e = 0; e < x.size(); ++e) x[e] = shown[0][e] + mixed[0][e];
  }
};

class DeepSqueeze final : public Moved {
 public:
  ReplicaUpdate update() const override { return ReplicaUpdate::kItself; }
};

class D2 final : public Moved {
 public:
  explicit D2(size_t elements) : last_(elements) {}

  void Propose(const Round& round, Vectors* shown) override {
    Vector& u = (*shown)[0];
    for (size_t e = 0; e < u.size(); ++e) {
      const float ahead = round.x[e] + round.moved[e];
      u[e] = round.number == 0 ? ahead : ahead + (round.x[e] - last_[e]);
      last_[e] = ahead;  // x' + d' of the next round
    }
  }
  void ForEachField(
      const std::function<void(std::string_view, std::span<float>)>& fn) override {
    fn("last", last_);
  }

 private:
  Vector last_;
};

class Tracking final : public GossipRule {
 public:
  explicit Tracking(size_t elements) : rest_(elements), y_(elements), d_(elements) {}

  size_t streams() const override { return 2; }
  void Propose(const Round& round, Vectors* shown) override {
    for (size_t e = 0; e < y_.size(); ++e) {
      d_[e] = round.moved[e];
      y_[e] = rest_[e] + d_[e];
      (*shown)[0][e] = round.x[e] + y_[e];
      (*shown)[1][e] = y_[e];
    }
  }
  void Absorb(const Round& /*round*/, const Vectors& shown, const Vectors& mixed,
              std::span<const float> /*replica*/, std::span<float> x) override {
    for (size_t e = 0; e < x.size(); ++e) {
      x[e] = shown[0][e] + mixed[0][e];
      rest_[e] = shown[1][e] + mixed[1][e] - d_[e];
    }
  }
  void ForEachField(
      const std::function<void(std::string_view, std::span<float>)>& fn) override {
    fn("rest", rest_);
  }

 private:
  Vector rest_;  // W y - d of the round before
  Vector y_, d_;
};

class Dcd : public GossipRule {
 public:
  bool shrinks() const override { return false; }
  bool needs_static_graph() const override { return true; }
  void Propose(const Round& round, Vectors* shown) override {
    Vector& u = (*shown)[0];
    for (size_t e = 0; e < u.size(); ++e) {
      u[e] = round.x[e] + round.mixed_before[e] + round.moved[e];
    }
  }
  void Absorb(const Round& /*round*/, const Vectors& /*shown*/, const Vectors& /*mixed*/,
              std::span<const float> replica, std::span<float> x) override {
    std::ranges::copy(replica, x.begin());
  }
};

// With t = number + 1: x of the next round is W ~x + d, z = (1 - t/2) x + (t/2) of that.
class Ecd final : public GossipRule {
 public:
  explicit Ecd(size_t elements) : next_(elements) {}

  bool shrinks() const override { return false; }
  bool needs_static_graph() const override { return true; }
  ReplicaUpdate update() const override { return ReplicaUpdate::kExtrapolated; }
  void Propose(const Round& round, Vectors* shown) override {
    const float half = static_cast<float>(round.number + 1) / 2;
    for (size_t e = 0; e < next_.size(); ++e) {
      next_[e] = round.replica_before[e] + round.mixed_before[e] + round.moved[e];
      (*shown)[0][e] = (1 - half) * round.x[e] + half * next_[e];
    }
  }
  void Absorb(const Round& /*round*/, const Vectors& /*shown*/, const Vectors& /*mixed*/,
              std::span<const float> /*replica*/, std::span<float> x) override {
    std::ranges::copy(next_, x.begin());
  }

 private:
  Vector next_;
};

// With the same rate for both, the mean of d and the pull to the mean of x are a pull to the
// mean of x + d: one vector is shown where the paper exchanges two.
class NoLoCo final : public Moved {
 public:
  explicit NoLoCo(const GossipRuleOptions& options)
      : rate_(static_cast<float>(options.outer_rate)),
        decay_(static_cast<float>(options.outer_momentum)),
        momentum_(options.elements) {}

  void Absorb(const Round& round, const Vectors& /*shown*/, const Vectors& mixed,
              std::span<const float> /*replica*/, std::span<float> x) override {
    for (size_t e = 0; e < x.size(); ++e) {
      momentum_[e] = decay_ * momentum_[e] + rate_ * (round.moved[e] + mixed[0][e]);
      x[e] += momentum_[e];
    }
  }
  void ForEachField(
      const std::function<void(std::string_view, std::span<float>)>& fn) override {
    fn("momentum", momentum_);
  }

 private:
  const float rate_, decay_;
  Vector momentum_;
};

}  // namespace

const std::map<std::string_view, GossipKind>& GossipKinds() {
  static const std::map<std::string_view, GossipKind> kinds = {
      {"dpsgd", GossipKind::kDpsgd},
      {"d2", GossipKind::kD2},
      {"gradient-tracking", GossipKind::kTracking},
      {"dcd", GossipKind::kDcd},
      {"ecd", GossipKind::kEcd},
      {"choco", GossipKind::kChoco},
      {"deepsqueeze", GossipKind::kDeepSqueeze},
      {"ad-psgd", GossipKind::kAdPsgd},
      {"sgp", GossipKind::kPushSum},
      {"noloco", GossipKind::kNoLoCo}};
  return kinds;
}

Result<GossipKind> ParseGossipKind(std::string_view name) {
  const auto found = GossipKinds().find(name);
  if (found != GossipKinds().end()) return found->second;
  std::string list;
  for (const auto& [other, kind] : GossipKinds()) {
    list += (list.empty() ? "" : ", ") + std::string(other);
  }
  return InvalidArgument("algorithm '" + std::string(name) +
                         "' is not known; valid are: " + list);
}

bool CanLoseWorkers(GossipKind kind) {
  return kind != GossipKind::kD2 && kind != GossipKind::kTracking && kind != GossipKind::kEcd;
}

std::unique_ptr<GossipRule> MakeGossipRule(GossipKind kind, const GossipRuleOptions& options) {
  switch (kind) {
    case GossipKind::kDpsgd:
      return std::make_unique<Dpsgd>();
    case GossipKind::kD2:
      return std::make_unique<D2>(options.elements);
    case GossipKind::kTracking:
      return std::make_unique<Tracking>(options.elements);
    case GossipKind::kDcd:
      return std::make_unique<Dcd>();
    case GossipKind::kEcd:
      return std::make_unique<Ecd>(options.elements);
    case GossipKind::kChoco:
    case GossipKind::kPushSum:
      return std::make_unique<Moved>();
    case GossipKind::kDeepSqueeze:
      return std::make_unique<DeepSqueeze>();
    case GossipKind::kNoLoCo:
      return std::make_unique<NoLoCo>(options);
    case GossipKind::kAdPsgd:
      break;
  }
  return nullptr;
}

}  // namespace elastiquant
