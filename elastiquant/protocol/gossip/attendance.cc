#include "elastiquant/protocol/gossip/attendance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace elastiquant {
namespace {

constexpr uint64_t kNotYet = std::numeric_limits<uint64_t>::max();

}  // namespace

Attendance::Attendance(std::shared_ptr<const Graph> graph, int rank)
    : graph_(std::move(graph)), rank_(rank) {}

void Attendance::Leave(int peer, uint64_t round) {
  std::vector<Absence>& absences = absent_[peer];
  const bool is_away = !absences.empty() && absences.back().until == kNotYet;
  if (!is_away) absences.push_back({round, kNotYet});
}

void Attendance::Return(int peer, uint64_t round) {
  const auto found = absent_.find(peer);
  if (found != absent_.end()) found->second.back().until = round;
}

bool Attendance::is_present(int peer, uint64_t round) const {
  const auto found = absent_.find(peer);
  return found == absent_.end() || std::ranges::none_of(found->second, [&](const Absence& a) {
           return a.from <= round && round < a.until;
         });
}

const Mixing& Attendance::MixingAt(uint64_t round) const {
  if (graph_->is_static()) return graph_->AtFirst();
  const auto found = mixings_.find(round);
  if (found != mixings_.end()) return found->second;
  if (mixings_.size() > graph_->nodes() + 2) mixings_.erase(mixings_.begin());
  return mixings_.emplace(round, graph_->At(round)).first->second;
}

double Attendance::TakesFrom(int peer, uint64_t round) const {
  if (peer == rank_ || !is_present(peer, round)) return 0;
  return MixingAt(round)(static_cast<size_t>(rank_), static_cast<size_t>(peer));
}

double Attendance::GivesTo(int peer, uint64_t round) const {
  if (peer == rank_ || !is_present(peer, round)) return 0;
  return MixingAt(round)(static_cast<size_t>(peer), static_cast<size_t>(rank_));
}

std::vector<int> Attendance::SendersIn(uint64_t round) const {
  std::vector<int> senders = graph_->senders(rank_);
  std::erase_if(senders, [&](int peer) { return TakesFrom(peer, round) == 0; });
  return senders;
}

std::vector<int> Attendance::ReceiversIn(uint64_t round) const {
  std::vector<int> receivers = graph_->receivers(rank_);
  std::erase_if(receivers, [&](int peer) { return GivesTo(peer, round) == 0; });
  return receivers;
}

double Attendance::PartGiven(uint64_t round) const {
  double taken = 0, given = 0;
  for (const int peer : SendersIn(round)) taken += TakesFrom(peer, round);
  for (const int peer : ReceiversIn(round)) given += GivesTo(peer, round);
  if (std::abs(taken - given) < 1e-9) return 1;
  return given > 0 ? taken / given : 0;
}

}  // namespace elastiquant
