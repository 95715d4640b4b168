// Workers that die, freeze, give up, leave or lose their way to one another, in every place:
// the others end within the time-out, and all of them name the right one. The same with real
// processes is in c10d/liveness_test.cc and in the Python package's fault_test.py.
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/net/communicator.h"
#include "elastiquant/net/memory/memory_network.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

enum class Failure { kKilled, kFrozen, kGivesUp, kLeaves };
enum class Place { kBetweenMessages, kWaitingForAll, kWhileOthersLeave };

constexpr milliseconds kTimeout{1000};
// Enough for a busy machine under a sanitizer; what is asked for is the time-out.
constexpr milliseconds kGrace{20000};

// The heart of worker 0 shares two cores with the threads of all the others. Among 32 of them,
// and beside other tests, it misses more than one second, although nobody froze it.
milliseconds TimeoutFor(int world) { return world > 3 ? 6 * kTimeout : kTimeout; }

const char* Name(Failure failure) {
  switch (failure) {
    case Failure::kKilled:
      return "Killed";
    case Failure::kFrozen:
      return "Frozen";
    case Failure::kGivesUp:
      return "GivesUp";
    case Failure::kLeaves:
      return "Leaves";
  }
  return "";
}
const char* Name(Place place) {
  switch (place) {
    case Place::kBetweenMessages:
      return "BetweenMessages";
    case Place::kWaitingForAll:
      return "WaitingForAll";
    case Place::kWhileOthersLeave:
      return "WhileOthersLeave";
  }
  return "";
}

struct Case {
  int world;
  int victim;
  Failure failure;
  Place place;
};

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return "Worker" + std::to_string(c.victim) + "Of" + std::to_string(c.world) +
         Name(c.failure) + Name(c.place);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int world : {2, 3, 16, 32}) {
    for (const int victim : {0, world - 1}) {
      for (const Failure failure :
           {Failure::kKilled, Failure::kFrozen, Failure::kGivesUp, Failure::kLeaves}) {
        for (const Place place :
             {Place::kBetweenMessages, Place::kWaitingForAll, Place::kWhileOthersLeave}) {
          // Who leaves while the others do has done nothing wrong.
          if (failure == Failure::kLeaves && place == Place::kWhileOthersLeave) continue;
          cases.push_back({world, victim, failure, place});
        }
      }
    }
  }
  return cases;
}

class FaultMatrix : public testing::TestWithParam<Case> {
 protected:
  // As `train` and `compress` work: messages to all, again and again.
  Status Exchange(Communicator& comm, uint32_t round) {
    const std::vector<uint8_t> bytes(100, static_cast<uint8_t>(round));
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (int r = 0; r < comm.world_size(); ++r) {
      if (r == comm.rank()) continue;
      transfers.push_back(comm.Receive(r, 0, bytes.size()));
      transfers.push_back(comm.Send(r, 0, bytes));
    }
    Status first;
    for (const auto& transfer : transfers) {
      const Status status = transfer->Wait().status();
      if (first.ok()) first = status;
    }
    return first;
  }

  // What becomes of the victim where it fails: true if it is to go on.
  void Fail(Communicator& comm) {
    switch (GetParam().failure) {
      case Failure::kKilled:
        return network_.Kill(comm.rank());
      case Failure::kFrozen:
        return network_.Freeze(comm.rank());
      case Failure::kGivesUp:
        return comm.Abort(Internal("the data ran out"));
      case Failure::kLeaves:
        return comm.SetFarewell("its script ended");
    }
  }

  Status Victim(Communicator& comm) {
    const Place place = GetParam().place;
    for (uint32_t round = 0; round < 3; ++round) EQ_RETURN_IF_ERROR(Exchange(comm, round));
    if (place == Place::kWaitingForAll) {
      // It has begun to receive what never comes, when it fails.
      const int peer = (comm.rank() + 1) % comm.world_size();
      const auto receive = comm.Receive(peer, 1, 8);
      std::thread failing([&] {
        std::this_thread::sleep_for(milliseconds(20));
        Fail(comm);
      });
      const Status status =
          GetParam().failure == Failure::kLeaves ? Status() : receive->Wait().status();
      failing.join();
      return status;
    }
    if (place == Place::kWhileOthersLeave) others_done_.wait();
    Fail(comm);
    if (GetParam().failure == Failure::kLeaves) return {};
    return comm.Barrier();
  }

  Status Other(Communicator& comm) {
    Status met;
    for (uint32_t round = 0; met.ok() && round < 3; ++round) met = Exchange(comm, round);
    others_done_.count_down();
    EQ_RETURN_IF_ERROR(met);
    if (GetParam().place != Place::kWhileOthersLeave) return Exchange(comm, 3);
    // They are done, and leave, but for one that still needs the victim.
    const int victim = GetParam().victim;
    if (comm.rank() != (victim + 1) % comm.world_size()) return {};
    return comm.Receive(victim, 0, 100)->Wait().status();
  }

  MemoryNetwork network_;
  std::latch others_done_{GetParam().world - 1};  // with what they need of all
};

TEST_P(FaultMatrix, TheOthersEndInTimeAndNameTheWorker) {
  const Case c = GetParam();
  const milliseconds timeout = TimeoutFor(c.world);
  const CommunicatorOptions options = HostedWorldOptions(c.world, timeout);
  std::vector<Status> ends(static_cast<size_t>(c.world));
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  const auto work = [&](Communicator& comm) {
    ends[static_cast<size_t>(comm.rank())] =
        comm.rank() == c.victim ? Victim(comm) : Other(comm);
  };
  for (int r = 0; r < c.world; ++r) threads.push_back(StartWorker(options, r, work, &network_));
  for (int r = 0; r < c.world; ++r) {
    if (r != c.victim) threads[static_cast<size_t>(r)].join();
  }
  EXPECT_LT(Clock::now() - begin, timeout + kGrace);
  network_.Thaw(c.victim);
  threads[static_cast<size_t>(c.victim)].join();

  const std::string victim = "worker " + std::to_string(c.victim);
  for (int r = 0; r < c.world; ++r) {
    const Status& end = ends[static_cast<size_t>(r)];
    if (r == c.victim) continue;
    const bool left_before =
        c.place == Place::kWhileOthersLeave && r != (c.victim + 1) % c.world;
    if (left_before) {
      EXPECT_TRUE(end.ok()) << "worker " << r << ": " << end.ToString();
      continue;
    }
    ASSERT_EQ(end.code(), StatusCode::kUnavailable) << "worker " << r << ": " << end.ToString();
    EXPECT_NE(end.message().find(victim), std::string::npos) << end.ToString();
    const char* cause = c.failure == Failure::kGivesUp  ? "the data ran out"
                        : c.failure == Failure::kLeaves ? "its script ended"
                                                        : "";
    EXPECT_NE(end.message().find(cause), std::string::npos) << end.ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(All, FaultMatrix, testing::ValuesIn(Cases()), CaseName);

// Both still reach the store, so that their hearts are heard: only the lack of progress tells.
TEST(FaultMatrixTest, ABrokenPathBetweenTwoEndsTheJobByTheStallTimeout) {
  MemoryNetwork network;
  CommunicatorOptions options = HostedWorldOptions(3, kTimeout);
  options.stall_timeout = kTimeout;
  std::vector<Status> ends(3);
  network.Cut(1, 2);
  RunWorld(
      options,
      [&](Communicator& comm) { ends[static_cast<size_t>(comm.rank())] = comm.Barrier(); },
      &network);
  for (const int r : {1, 2}) {
    const std::string& words = ends[static_cast<size_t>(r)].message();
    EXPECT_NE(words.find("stall_timeout"), std::string::npos) << words;
    EXPECT_NE(words.find("workers 1 and 2 have waited for each other"), std::string::npos)
        << words;
  }
}

}  // namespace
}  // namespace elastiquant
