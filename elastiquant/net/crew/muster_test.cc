#include "elastiquant/net/crew/muster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/schedules_testing.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;
using Order = MusterOrder::Kind;

constexpr milliseconds kPatience{100};

MusterOptions OptionsOf(int worker, std::vector<int> group, Arrival arrival) {
  return {
      .worker = worker, .group = std::move(group), .arrival = arrival, .patience = kPatience};
}

TEST(MusterTest, GoesOnAtOnceWithoutTheOneThatIsBlamed) {
  MusterOptions options = OptionsOf(0, {0, 1, 2}, Arrival::kBroken);
  options.lost = {2};
  Muster muster(options);
  MusterView view{.here = {{0, Arrival::kBroken}}};
  EXPECT_EQ(muster.Look(view, milliseconds(0)).kind, Order::kWait);
  view.here[1] = Arrival::kBroken;
  const MusterOrder order = muster.Look(view, milliseconds(1));
  EXPECT_EQ(order.kind, Order::kPropose);
  EXPECT_EQ(order.group, (std::vector<int>{0, 1}));
}

TEST(MusterTest, WaitsForOneThatBeatsAndNotForOneThatIsSilent) {
  Muster muster(OptionsOf(0, {0, 1, 2}, Arrival::kBroken));
  MusterView view{.here = {{0, Arrival::kBroken}}, .hearts = {{1, "1"}, {2, "1"}}};
  for (int t = 0; t < 300; t += 50) {
    view.hearts[1] = std::to_string(t);
    EXPECT_EQ(muster.Look(view, milliseconds(t)).kind, Order::kWait);
  }
  view.here[1] = Arrival::kBroken;
  EXPECT_EQ(muster.Look(view, milliseconds(300)).group, (std::vector<int>{0, 1}));
}

TEST(MusterTest, NewcomersComeLastAndOnlyBetweenRounds) {
  MusterView view{
      .here = {{0, Arrival::kNewcomer}, {1, Arrival::kBoundary}, {2, Arrival::kBoundary}}};
  Muster boundary(OptionsOf(1, {1, 2}, Arrival::kBoundary));
  EXPECT_EQ(boundary.Look(view, milliseconds(0)).group, (std::vector<int>{1, 2, 0}));
  view.here[2] = Arrival::kBroken;
  Muster broken(OptionsOf(1, {1, 2}, Arrival::kBoundary));
  EXPECT_EQ(broken.Look(view, milliseconds(0)).group, (std::vector<int>{1, 2}));
}

TEST(MusterTest, ANewcomerWaitsAsLongAsSomebodyKnowsTheRun) {
  Muster muster(OptionsOf(1, {0, 1}, Arrival::kNewcomer));
  MusterView view{.here = {{1, Arrival::kNewcomer}}, .hearts = {{0, "1"}}};
  EXPECT_EQ(muster.Look(view, milliseconds(0)).kind, Order::kWait);
  view.hearts[0] = "2";
  EXPECT_EQ(muster.Look(view, milliseconds(90)).kind, Order::kWait);
  EXPECT_EQ(muster.Look(view, milliseconds(180)).kind, Order::kWait);
  EXPECT_EQ(muster.Look(view, milliseconds(200)).kind, Order::kDespair);
  view.over = true;
  EXPECT_EQ(muster.Look(view, milliseconds(300)).kind, Order::kGoHome);
}

TEST(MusterTest, WhoIsNotOnTheListStaysOut) {
  Muster muster(OptionsOf(1, {0, 1}, Arrival::kBroken));
  const MusterView view{.decided = std::vector<int>{0}};
  EXPECT_EQ(muster.Look(view, milliseconds(0)).kind, Order::kStayOut);
}

TEST(MusterTest, NobodyWaitsForOneThatHasGivenUp) {
  const std::map<int, std::string> hearts{{0, "1"}, {1, "1"}, {2, "1"}};
  Muster muster(OptionsOf(0, {0, 1, 2}, Arrival::kBoundary));
  MusterView view{.here = {{0, Arrival::kBoundary}, {1, Arrival::kGivesUp}}, .hearts = hearts};
  EXPECT_EQ(muster.Look(view, milliseconds(0)).kind, Order::kWait);
  view.here[2] = Arrival::kBoundary;
  const MusterOrder order = muster.Look(view, milliseconds(1));
  EXPECT_EQ(order.kind, Order::kPropose);
  EXPECT_EQ(order.group, (std::vector<int>{0, 2}));
  // Nor does a newcomer, whom it can tell nothing.
  Muster newcomer(OptionsOf(2, {1, 2}, Arrival::kNewcomer));
  EXPECT_EQ(newcomer.Look(view, milliseconds(1)).kind, Order::kDespair);
}

// Two cannot connect to each other: one gives up, and the other comes late to the same meeting.
TEST(MusterTest, WaitsForTheOneThatIsBlamedWhereAnotherGivesUp) {
  MusterOptions options = OptionsOf(2, {0, 1, 2}, Arrival::kBroken);
  options.lost = {1};
  MusterView view{.here = {{0, Arrival::kGivesUp}, {2, Arrival::kBroken}},
                  .hearts = {{1, "1"}}};
  Muster silent(options);
  EXPECT_EQ(silent.Look(view, milliseconds(0)).kind, Order::kWait);
  EXPECT_EQ(silent.Look(view, 2 * kPatience).group, std::vector<int>{2});
  Muster late(options);
  EXPECT_EQ(late.Look(view, milliseconds(0)).kind, Order::kWait);
  view.here[1] = Arrival::kBroken;
  EXPECT_EQ(late.Look(view, milliseconds(1)).group, (std::vector<int>{1, 2}));
}

TEST(MusterTest, ReadsWhatItWrites) {
  EXPECT_EQ(ParseGroup(EncodeGroup({3, 0, 12})).value(), (std::vector<int>{3, 0, 12}));
  for (const char* bad : {"", "1,", "x", "1,1", "-1"})
    EXPECT_FALSE(ParseGroup(bad).ok()) << bad;
  for (const Arrival a :
       {Arrival::kBroken, Arrival::kBoundary, Arrival::kNewcomer, Arrival::kGivesUp}) {
    EXPECT_EQ(ParseArrival(EncodeArrival(a)).value(), a);
  }
  EXPECT_FALSE(ParseArrival("").ok());
}

// Workers that meet over a store, and die, freeze, wake up and come again as the seed says.
class MusterWorld {
 public:
  MusterWorld(uint64_t seed, int workers) : keys_(MakeLaneKeys(DeriveKey(seed, 0, 0, 3))) {
    for (int w = 0; w < workers; ++w) groups_[0].push_back(w);
    for (int w = 0; w < workers; ++w) workers_.push_back({.group = groups_[0]});
  }

  void Run() {
    for (now_ = 0; now_ < 6000 && !testing::Test::HasFatalFailure(); ++now_) {
      if (now_ < 2000 && Draw(150) == 0) Disturb();
      if (now_ > 2000) Heal();
      if (now_ % 10 == 0) Beat();
      for (int i = 0; i < 3; ++i) Act(static_cast<int>(Draw(Count())));
      if (Draw(40) == 0) MeetBetweenRounds();
      CheckOneGroup();
    }
  }

  // All are together again, but those that have given up because nobody lived whom they could
  // join, or because all of these were frozen.
  void Check() {
    int together = 0;
    for (int w = 0; w < static_cast<int>(Count()); ++w) {
      const Worker& worker = workers_[static_cast<size_t>(w)];
      despaired_ += worker.state == State::kDespaired ? 1 : 0;
      together += worker.state == State::kTogether && IsWhole(worker.number) ? 1 : 0;
    }
    ASSERT_EQ(together + despaired_, static_cast<int>(Count()));
  }
  int despaired() const { return despaired_; }

 private:
  enum class State { kTogether, kMeets, kConnects, kDead, kDespaired };
  struct Worker {
    State state = State::kTogether;
    int number = 0;  // of its group
    std::vector<int> group{};
    bool newcomer = false;
    bool frozen = false;
    int64_t since = 0;
    Arrival arrival = Arrival::kBroken;
    std::shared_ptr<Muster> muster{};
  };

  uint32_t Draw(uint32_t below) { return RandomBits(keys_, draws_++) % below; }
  uint32_t Count() const { return static_cast<uint32_t>(workers_.size()); }
  Worker& At(int w) { return workers_[static_cast<size_t>(w)]; }
  bool Runs(int w) { return At(w).state != State::kDead && !At(w).frozen; }

  void Disturb() {
    Worker& worker = At(static_cast<int>(Draw(Count())));
    switch (Draw(3)) {
      case 0:
        worker.state = State::kDead;
        worker.frozen = false;
        return;
      case 1:
        worker.frozen = worker.state != State::kDead && !worker.frozen;
        return;
      default:
        Restart(&worker);
    }
  }

  // From here on nothing happens any more but that those come back that were lost.
  void Heal() {
    for (Worker& worker : workers_) {
      worker.frozen = false;
      Restart(&worker);
    }
  }

  void Restart(Worker* worker) {
    if (worker->state != State::kDead) return;
    const auto& [number, group] = *groups_.rbegin();
    *worker = {.number = number, .group = group, .newcomer = true};
    Meet(worker, Arrival::kNewcomer, {});
  }

  void Beat() {
    for (int w = 0; w < static_cast<int>(Count()); ++w) {
      if (Runs(w) && At(w).state != State::kDespaired) ++hearts_[w];
    }
  }

  void Meet(Worker* worker, Arrival arrival, std::set<int> lost) {
    const int w = static_cast<int>(worker - workers_.data());
    worker->state = State::kMeets;
    worker->arrival = worker->newcomer ? Arrival::kNewcomer : arrival;
    here_[worker->number + 1][w] = worker->arrival;
    worker->muster = std::make_shared<Muster>(MusterOptions{.worker = w,
                                                            .group = worker->group,
                                                            .arrival = worker->arrival,
                                                            .lost = std::move(lost),
                                                            .patience = kPatience});
  }

  void Act(int w) {
    Worker& worker = At(w);
    if (!Runs(w)) return;
    const bool mistaken = now_ < 2000 && Draw(2000) == 0;
    if (worker.state == State::kTogether && (IsBroken(worker) || mistaken)) {
      Meet(&worker, Arrival::kBroken,
           {worker.group[Draw(static_cast<uint32_t>(worker.group.size()))]});
    } else if (worker.state == State::kMeets) {
      Obey(&worker);
    } else if (worker.state == State::kConnects) {
      Connect(&worker);
    }
  }

  void Obey(Worker* worker) {
    const int next = worker->number + 1;
    MusterView view{.here = here_[next]};
    for (const auto& [w, beats] : hearts_) view.hearts[w] = std::to_string(beats);
    if (groups_.contains(next)) view.decided = groups_[next];
    const MusterOrder order = worker->muster->Look(view, milliseconds(now_));
    switch (order.kind) {
      case Order::kPropose:
        CheckProposal(next, order.group);
        groups_.try_emplace(next, order.group);
        return;
      case Order::kJoin:
      case Order::kStayOut:
        worker->number = next;
        worker->group = order.group;
        if (order.kind == Order::kJoin) {
          worker->state = State::kConnects;
          worker->since = now_;
        } else {
          worker->newcomer = true;
          Meet(worker, Arrival::kNewcomer, {});
        }
        return;
      case Order::kDespair:
        worker->state = State::kDespaired;
        return;
      default:
        return;
    }
  }

  // It has connected when all are there, and has then been told all that the others know.
  void Connect(Worker* worker) {
    if (!IsBroken(*worker)) {
      worker->state = State::kTogether;
      worker->newcomer = false;
    } else if (now_ - worker->since > 200) {
      if (now_ < 2000 && Draw(4) == 0) return GiveUp(worker);
      Meet(worker, Arrival::kBroken, {});
    }
  }

  // Its process ends, and may be started again.
  void GiveUp(Worker* worker) {
    here_[worker->number + 1][static_cast<int>(worker - workers_.data())] = Arrival::kGivesUp;
    worker->state = State::kDead;
  }

  void MeetBetweenRounds() {
    for (Worker& worker : workers_) {
      if (worker.state != State::kTogether || !IsWhole(worker.number)) continue;
      if (here_[worker.number + 1].empty()) return;  // nobody waits
      const std::vector<int> group = worker.group;
      if (!std::ranges::all_of(group, [&](int w) { return Runs(w); })) return;
      for (const int w : group) Meet(&At(w), Arrival::kBoundary, {});
      return;
    }
  }

  // Whether some worker of the group is neither in it nor about to be.
  bool IsBroken(const Worker& worker) {
    return std::ranges::any_of(worker.group, [&](int w) {
      const State state = At(w).state;
      return !Runs(w) || At(w).number != worker.number ||
             (state != State::kConnects && state != State::kTogether);
    });
  }

  bool IsWhole(int number) {
    return std::ranges::all_of(groups_[number], [&](int w) {
      return At(w).state == State::kTogether && At(w).number == number;
    });
  }

  void CheckProposal(int next, const std::vector<int>& group) {
    bool any_knows = false, any_new = false, at_boundary = true;
    for (const int w : group) {
      const Arrival arrival = here_[next].at(w);
      any_new = any_new || arrival == Arrival::kNewcomer;
      any_knows = any_knows || arrival != Arrival::kNewcomer;
      at_boundary = at_boundary && arrival != Arrival::kBroken;
    }
    ASSERT_TRUE(any_knows);
    ASSERT_TRUE(!any_new || at_boundary) << "a newcomer was taken within a round";
  }

  void CheckOneGroup() {
    int whole = 0;
    for (const auto& [number, group] : groups_) whole += IsWhole(number) ? 1 : 0;
    ASSERT_LE(whole, 1) << "two groups go on beside each other";
  }

  const LaneKeys keys_;
  uint32_t draws_ = 0;
  int64_t now_ = 0;  // ms
  int despaired_ = 0;
  std::vector<Worker> workers_;
  // What the store has.
  std::map<int, std::vector<int>> groups_;
  std::map<int, std::map<int, Arrival>> here_;
  std::map<int, int> hearts_;
};

TEST(MusterTest, ThoseThatLiveComeTogetherWhateverHappened) {
  uint64_t tried = 0, together = 0;  // the latter: seeds in which all were together at the end
  ForEachSchedule("MUSTER_SEED", 1000, [&](uint64_t seed) {
    MusterWorld world(seed, 1 + static_cast<int>(seed % 6));
    world.Run();
    if (testing::Test::HasFatalFailure()) return;
    world.Check();
    ++tried;
    together += world.despaired() == 0 ? 1 : 0;
  });
  if (tried > 1) {
    EXPECT_GT(together, tried / 3);
  }
}

}  // namespace
}  // namespace elastiquant
