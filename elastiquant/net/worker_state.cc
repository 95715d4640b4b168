#include "elastiquant/net/worker_state.h"

#include <algorithm>
#include <charconv>

namespace elastiquant {
namespace {

constexpr char kLine = '\n';

std::string_view TakeUntil(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return head;
}

// The number that Encode wrote. A worker trusts the others' states as it trusts its store.
uint64_t NumberIn(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string Join(const std::set<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

std::set<int> ParseRanks(std::string_view text) {
  std::set<int> ranks;
  while (!text.empty()) ranks.insert(static_cast<int>(NumberIn(TakeUntil(text, ','))));
  return ranks;
}

}  // namespace

std::string WorkerState::Encode() const {
  std::string text = std::to_string(beats) + kLine + std::to_string(ended) + kLine +
                     Join(waits_for) + kLine + Join(released) + kLine;
  if (departure) {
    for (const Ledger::Account& a : departure->accounts) {
      text += std::to_string(a.sent) + ":" + std::to_string(a.received) + ",";
    }
  }
  text += kLine;
  text += gone ? "gone" : "";
  return text + kLine + (departure ? departure->why : activity);
}

WorkerState WorkerState::Parse(std::string_view text) {
  WorkerState state;
  state.beats = NumberIn(TakeUntil(text, kLine));
  state.ended = NumberIn(TakeUntil(text, kLine));
  state.waits_for = ParseRanks(TakeUntil(text, kLine));
  state.released = ParseRanks(TakeUntil(text, kLine));
  std::string_view accounts = TakeUntil(text, kLine);
  state.gone = !TakeUntil(text, kLine).empty();
  if (accounts.empty()) {
    state.activity = text;
    return state;
  }
  state.departure = Departure{std::string(text), {}};
  state.activity = "leaving";
  while (!accounts.empty()) {
    std::string_view account = TakeUntil(accounts, ',');
    const uint64_t sent = NumberIn(TakeUntil(account, ':'));
    state.departure->accounts.push_back({sent, NumberIn(account)});
  }
  return state;
}

Stall FindStall(const std::vector<WorkerState>& states,
                const std::vector<std::chrono::milliseconds>& still, int rank,
                const WorkerNames& names, const std::string& waited) {
  struct Edge {
    int waiting;
    int awaited;
  };
  std::optional<Edge> idle, mutual;
  std::set<int> seen;
  std::vector<int> open{rank};
  while (!open.empty()) {
    const int from = open.back();
    open.pop_back();
    if (!seen.insert(from).second) continue;
    for (const int to : states[static_cast<size_t>(from)].waits_for) {
      const std::set<int>& further = states[static_cast<size_t>(to)].waits_for;
      const auto stands = [&](int r) { return still[static_cast<size_t>(r)]; };
      if (further.empty() && (!idle || stands(to) > stands(idle->awaited))) idle = {from, to};
      if (further.contains(from)) mutual = {from, to};
      open.push_back(to);
    }
  }
  if (idle) {
    return {idle->awaited, names(idle->awaited) + " made no progress while it was " +
                               states[static_cast<size_t>(idle->awaited)].activity + ": " +
                               names(idle->waiting) + " has waited for it for " + waited};
  }
  if (mutual) {
    const auto [a, b] = std::minmax(mutual->waiting, mutual->awaited);
    return {a, "workers " + std::to_string(names.number(a)) + " and " +
                   std::to_string(names.number(b)) + " have waited for each other for " +
                   waited +
                   ": the network between them may be broken, though both reach the rendezvous "
                   "store"};
  }
  std::set<int> circle;
  for (const int r : seen) circle.insert(names.number(r));
  return {rank,
          "workers " + Join(circle) + " have waited for each other in a circle for " + waited};
}

}  // namespace elastiquant
