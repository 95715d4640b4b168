#include "elastiquant/net/ledger.h"

#include <algorithm>

namespace elastiquant {

bool Ledger::Begin(int peer, Way way) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  Peer& p = At(peer);
  if (way == Way::kSend) {
    ++p.begun.sent;
  } else {
    ++p.begun.received;
    ++p.receives_under_way;
  }
  return true;
}

void Ledger::End(int peer, Way way, int came_from) {
  const std::lock_guard lock(mutex_);
  ++ended_;
  if (way == Way::kReceive) --At(peer).receives_under_way;
  if (peer == kAnyPeer && came_from != kAnyPeer) ++At(came_from).begun.received;
}

void Ledger::BeginWait(int peer) {
  const std::lock_guard lock(mutex_);
  ++At(peer).waits;
}

void Ledger::EndWait(int peer) {
  const std::lock_guard lock(mutex_);
  --At(peer).waits;
}

std::vector<Ledger::Account> Ledger::accounts() const {
  const std::lock_guard lock(mutex_);
  std::vector<Account> accounts;
  accounts.reserve(peers_.size());
  for (const Peer& p : peers_) accounts.push_back(p.begun);
  return accounts;
}

uint64_t Ledger::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::set<int> Ledger::waits_for() const {
  const std::lock_guard lock(mutex_);
  std::set<int> ranks;
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (any_.waits > 0 || peers_[r].waits > 0) ranks.insert(static_cast<int>(r));
  }
  return ranks;
}

bool Ledger::receives_from(int peer) const {
  const std::lock_guard lock(mutex_);
  return peers_[static_cast<size_t>(peer)].receives_under_way > 0;
}

bool Ledger::receives_from_any() const {
  const std::lock_guard lock(mutex_);
  return any_.receives_under_way > 0;
}

bool Ledger::CloseIfIdle() {
  const std::lock_guard lock(mutex_);
  const auto idle = [](const Peer& p) { return p.receives_under_way == 0; };
  closed_ = closed_ || (idle(any_) && std::ranges::all_of(peers_, idle));
  return closed_;
}

}  // namespace elastiquant
