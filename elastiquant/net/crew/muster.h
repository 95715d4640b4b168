// How those that are left of a group of workers agree on who goes on. It is the part of one
// worker, without threads, clocks or sockets: it is shown what all have written to the store,
// and says what this worker must do (crew.h does it).
//
// A worker that is lost ends its group. Each of the others writes that it is here, and whoever
// first sees that nobody else need be waited for writes the list of the next group, which
// stands once it is written. A worker that is not on the list, because it was frozen and wakes
// up, or because it was started again, is a newcomer. Newcomers are taken only if the whole
// group has met between two rounds, and they never write a list: what a group knows cannot be
// lost by those who know nothing. A worker that cannot go on writes that it gives up, and the
// others go on without it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// In which state a worker has come.
enum class Arrival : uint8_t {
  kBroken,    // its group was broken by a loss
  kBoundary,  // all of its group have agreed to meet here, between two rounds
  kNewcomer,  // it was in no group, or was left behind by one
  kGivesUp,   // it has not come and never will: nobody need wait for it
};

struct MusterOptions {
  int worker = 0;
  std::vector<int> group{};  // that was: its workers, those first that have been in it longest
  Arrival arrival = Arrival::kBroken;
  // Blamed for the group's end, and not waited for unless some worker gives up.
  std::set<int> lost{};
  // A worker whose heart stands still for longer is not waited for.
  std::chrono::milliseconds patience{20000};
  // Nor is one that lives, but has not come for so long.
  std::chrono::milliseconds limit{std::chrono::minutes(30)};
};

// What the store holds.
struct MusterView {
  std::map<int, Arrival> here{};
  std::map<int, std::string> hearts{};        // by worker; any change is a beat
  std::optional<std::vector<int>> decided{};  // the next group, once it is written
  bool over = false;                          // whether the run has come to its end
};

struct MusterOrder {
  enum class Kind : uint8_t {
    kWait,
    kPropose,  // write `group` as the next one, unless there is one
    kJoin,     // `group`, of which this worker is
    kStayOut,  // this worker is a newcomer to the group after `group`
    kGoHome,   // the run is over
    kDespair,  // nobody is left of the group that this newcomer waits for
  };
  Kind kind = Kind::kWait;
  std::vector<int> group{};
};

// One such meeting.
class Muster {
 public:
  explicit Muster(MusterOptions options) : options_(std::move(options)) {}

  // Returns what to do, given what the store holds now. `now` is on any clock that stands still
  // while this process does.
  MusterOrder Look(const MusterView& view, std::chrono::milliseconds now);

 private:
  struct Heart {
    std::string beat;
    std::chrono::milliseconds since{};
  };
  void TakeIn(const MusterView& view, std::chrono::milliseconds now);
  bool IsSilent(int worker, std::chrono::milliseconds now) const;
  bool IsAwaited(int worker, const MusterView& view, std::chrono::milliseconds now) const;
  MusterOrder Propose(const MusterView& view, std::chrono::milliseconds now) const;
  MusterOrder AsNewcomer(const MusterView& view, std::chrono::milliseconds now) const;

  const MusterOptions options_;
  std::optional<std::chrono::milliseconds> began_;
  std::map<int, Heart> hearts_;
};

// As the store has them. Parse fails with CorruptData.
std::string EncodeGroup(const std::vector<int>& group);
Result<std::vector<int>> ParseGroup(std::string_view text);
std::string EncodeArrival(Arrival arrival);
Result<Arrival> ParseArrival(std::string_view text);

}  // namespace elastiquant
