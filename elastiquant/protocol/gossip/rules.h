// What each algorithm of decentralised training makes of a round: what a worker shows its
// neighbours, and how its weights move by what they show. They have nothing to do with messages
// (gossip.h).
//
// With x the weights of a worker, d how far its optimiser moves them in the round (-rate *
// gradient under plain SGD), u what it shows, and ^u_j the neighbours' replicas of it,
//   mixed = step * (sum over j of W_ij ^u_j - sum over j of W_ji ^u_i),
// which adds up to zero over the workers whatever the replicas are: so the mean of the weights
// moves by the mean of d, as if there were no network. (Without compression it is W u - u.)
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

enum class GossipKind : uint8_t {
  kDpsgd,        // Lian et al., NeurIPS 2017: x <- W x + d
  kD2,           // Tang et al., ICML 2018: u = 2 x - x' + d - d', x <- W u; ' is the last round
  kTracking,     // Pu and Nedic, 2021: y <- W y' + d - d', x <- W (x + y)
  kDcd,          // Tang et al., NeurIPS 2018: u = W ^x + d, x <- ^u
  kEcd,          // the same: u extrapolates, replicas interpolate
  kChoco,        // Koloskova et al., ICML 2019: u = x + d, x <- u + mixed
  kDeepSqueeze,  // Tang et al., 2019: the same, but u is sent itself, with error feedback
  kPushSum,      // Assran et al., ICML 2019, SGP: the same for directed graphs
  kNoLoCo,       // Kolehmainen et al., 2025: m <- mu m + rate (d + mixed), x <- x + m
  kAdPsgd,       // Lian et al., ICML 2018: pairs, whenever one of them is ready (pairwise.h)
};

// Return the kind of a name such as "choco" or "ad-psgd"; kInvalidArgument lists the names.
Result<GossipKind> ParseGossipKind(std::string_view name);
const std::map<std::string_view, GossipKind>& GossipKinds();
// Returns whether the others can go on without a worker that is lost: not where what a worker
// remembers of all others together would stay wrong for good.
bool CanLoseWorkers(GossipKind kind);
// Their names, for messages about the others.
inline constexpr char kThoseThatCanLoseWorkers[] =
    "dpsgd, dcd, choco, deepsqueeze, ad-psgd, sgp or noloco";

// How what comes changes the replica of it.
enum class ReplicaUpdate : uint8_t {
  kDifference,   // it is a difference from the replica
  kItself,       // it is what is shown
  kExtrapolated  // ECD: the replica becomes (1 - 2/t) replica + (2/t) of it
};

class GossipRule {
 public:
  virtual ~GossipRule() = default;

  // The vectors that it shows in a round, of which the first are weights.
  virtual size_t streams() const { return 1; }
  virtual ReplicaUpdate update() const { return ReplicaUpdate::kDifference; }
  // Whether what is sent may be made smaller so that it is never further from the truth than
  // nothing is, which biased and coarse codecs need.
  virtual bool shrinks() const { return true; }
  // Whether Propose needs no `moved`, so that messages travel while the gradient is computed.
  virtual bool is_early() const { return false; }
  // Whether the replicas of stream 0 must be those of all neighbours in each round.
  virtual bool needs_static_graph() const { return false; }

  struct Round {
    uint64_t number = 0;           // from 0
    std::span<const float> x;      // the weights at its beginning
    std::span<const float> moved;  // d; empty in Propose if is_early()
    // If needs_static_graph(), for Propose: what the neighbours have of this worker's stream 0
    // before the round, and what is mixed of those replicas.
    std::span<const float> replica_before = {}, mixed_before = {};
  };
  using Vectors = std::vector<std::vector<float>>;  // by stream

  virtual void Propose(const Round& round, Vectors* shown) = 0;
  // `replica` is that which the neighbours now have of this worker's stream 0.
  virtual void Absorb(const Round& round, const Vectors& shown, const Vectors& mixed,
                      std::span<const float> replica, std::span<float> x) = 0;

  // Calls fn(name, values) for all that it remembers between rounds.
  virtual void ForEachField(const std::function<void(std::string_view, std::span<float>)>& fn) {
    (void)fn;
  }
};

struct GossipRuleOptions {
  size_t elements = 0;
  double outer_rate = .7, outer_momentum = .3;  // of NoLoCo
};
// Makes the rule; kAdPsgd has none.
std::unique_ptr<GossipRule> MakeGossipRule(GossipKind kind, const GossipRuleOptions& options);

}  // namespace elastiquant
