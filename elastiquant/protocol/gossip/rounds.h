// The worker of algorithms that meet in rounds: all but AD-PSGD.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "elastiquant/kernels/weighted_sum.h"
#include "elastiquant/protocol/gossip/attendance.h"
#include "elastiquant/protocol/gossip/gossip.h"

namespace elastiquant {

class GossipRounds final : public GossipNode {
 public:
  static Result<std::unique_ptr<GossipNode>> Make(const GossipOptions& options,
                                                  std::span<const float> start);

  uint64_t round() const override { return round_; }
  std::span<const float> weights() const override { return is_push_sum() ? weights_ : x_; }
  size_t MaxMessageBytes() const override;

  Result<GossipSends> OnRound() override;
  Result<GossipSends> OnMoved(std::span<const float> moved) override;
  Result<GossipSends> OnMessage(int from, std::span<const uint8_t> bytes) override;

  bool is_waiting() const override { return has_moved_; }
  bool is_owed() const override;
  std::vector<int> MissingIn(uint64_t round) const override;
  std::vector<int> ReceiversIn(uint64_t round) const override {
    return attendance_.ReceiversIn(round);
  }
  std::vector<int> WaitsFor() const override;

  Result<GossipSends> Drop(int peer, uint64_t round) override;
  Status Admit(int peer, uint64_t round, std::span<const float> weights) override;
  uint64_t RoundsFrom(int peer) const override;

  std::span<const float> ReplicaOf(int peer, size_t stream) const override;
  std::span<const float> ReplicaAt(int peer, size_t stream) const override;

  bool has_replicas() const override {
    return options_.graph->is_static() || !edge_.is_lossless();
  }

  GossipErrors TakeErrors() override { return std::exchange(errors_, {}); }

  Result<GossipState> Save() override;
  Status Load(const GossipState& state) override;

 private:
  using Vector = std::vector<float>;
  // What has come of a round and does not count yet.
  struct Received {
    double weight = 1;
    std::vector<Decoded> streams = {};
  };

  GossipRounds(const GossipOptions& options, EdgeOptions edge, std::span<const float> start);

  size_t streams() const override { return rule_->streams(); }
  std::span<const float> start() const override { return start_; }

  int rank() const { return options_.rank; }
  bool is_push_sum() const { return options_.kind == GossipKind::kPushSum; }
  bool has_one_outlet() const { return options_.graph->is_static() || edge_.is_lossless(); }
  // Whether replicas are made when an edge is first used: at start_, which one that was taken
  // back does not have in common with the others, so that a state has to have it.
  bool makes_replicas_late() const { return !has_one_outlet(); }
  std::span<const float> StartOf(size_t stream) const;
  std::vector<Outlet>& OutletsTo(int peer);
  std::vector<Inlet>& InletsOf(int peer);
  Result<Received> Decode(int from, const GossipMessage& message);

  void LoadReplicas(const GossipState& state, StateReader* reader);
  Status CheckMoved(std::span<const float> moved) const;
  GossipRule::Round RoundNow();
  Result<GossipSends> Show();
  Status Encode(int peer, std::vector<uint8_t>* bytes);
  void TakeMessages(uint64_t round);
  std::vector<WeightedVector> SharesOf(size_t stream, uint64_t round);
  void Mix(uint64_t round);
  void TakeOwed();
  Result<GossipSends> Advance();
  void EndRound();
  void Debias();

  GossipOptions options_;
  EdgeOptions edge_;
  Attendance attendance_;
  std::unique_ptr<GossipRule> rule_;
  std::unique_ptr<GossipScratch> scratch_;
  Vector start_;

  uint64_t round_ = 0;
  double weight_ = 1;                           // push-sum's
  Vector x_;                                    // the weights; push-sum's numerators
  Vector weights_;                              // push-sum's: x_ / weight_
  std::map<int, std::vector<Outlet>> outlets_;  // by receiver; of all if the graph is static
  std::map<int, std::vector<Inlet>> inlets_;    // by sender
  std::map<int, uint64_t> seen_;                // by sender: see RoundsFrom

  GossipErrors errors_;
  bool has_shown_ = false, has_moved_ = false;  // in this round
  bool is_mixed_ = true;  // whether mixed_ is that of the messages that were sent last
  Vector moved_;
  GossipRule::Vectors shown_, mixed_;
  std::map<int, std::map<uint64_t, Received>> inbox_;  // by sender and round
  std::map<int, std::vector<uint8_t>> messages_;       // by receiver; of all if static
};

}  // namespace elastiquant
