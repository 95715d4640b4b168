// Reductions over a network that delays, loses and kills: no fault may change a bit of a mean
// that is reached, and none may keep a worker waiting.
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/exchange/reducer_testing.h"
#include "elastiquant/net/memory/memory_network.h"

namespace elastiquant {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// One codec for each way to the mean: two-phase, all-gather of dithered, sparse and dense
// messages, factors, and integer sums.
const char* const kCodecs[] = {"elastic:bits=4", "dither:bits=1",      "topk:ratio=0.05|ef",
                               "alq:bits=3",     "powersgd:rank=2|ef", "terngrad"};
const Lengths kFaultLengths = {1, 700, 3000, 20000};

// Nobody freezes in these tests: a death closes its connections at once. On a busy machine
// under a sanitizer 32 workers are silent for seconds, and that must not be taken for a fault.
constexpr milliseconds kLongSilence(20000);

// By rank: the means of the last of three steps.
std::vector<Vectors> MeansOn(const MemoryFaults& faults, int world, const std::string& codec) {
  MemoryNetwork network(faults);
  std::vector<Vectors> means(static_cast<size_t>(world));
  RunWorld(
      HostedWorldOptions(world, kLongSilence),
      [&](Communicator& comm) {
        Worker worker(&comm, codec, kFaultLengths, std::nullopt, {.seed = 3});
        for (uint64_t step = 0; step < 3; ++step) {
          worker.Fill(step);
          EXPECT_FALSE(worker.Step(step).skipped);
        }
        means[static_cast<size_t>(comm.rank())] = worker.gradients;
      },
      &network);
  return means;
}

class NetworkFaults : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, NetworkFaults, testing::Values(1, 2, 3, 5, 16), WorldName);
class NetworkDeaths : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, NetworkDeaths, testing::Values(2, 3, 5, 16, 32), WorldName);

TEST_P(NetworkFaults, DelayAndLossChangeNoBit) {
  const int world = GetParam();
  for (const char* codec : kCodecs) {
    const auto calm = MeansOn({}, world, codec);
    for (const Vectors& means : calm) EXPECT_EQ(means, calm[0]) << codec;
    const MemoryFaults faults{.least_delay = microseconds(0),
                              .most_delay = microseconds(2000),
                              .loss = 0.1,
                              .retransmission = milliseconds(5),
                              .seed = 11};
    EXPECT_EQ(MeansOn(faults, world, codec), calm) << codec;
  }
}

// The moment differs from case to case, so that it falls into each stage of some.
TEST_P(NetworkDeaths, ADeathWithinAStepEndsTheOthersWithItsName) {
  const int world = GetParam();
  for (size_t c = 0; c < std::size(kCodecs); ++c) {
    const int victim = static_cast<int>(c) % world;
    MemoryNetwork network({.most_delay = microseconds(500), .seed = c});
    std::latch made(world);  // to make a reducer takes all workers, too
    const auto work = [&](Communicator& comm) {
      Worker worker(&comm, kCodecs[c], kFaultLengths, std::nullopt);
      made.arrive_and_wait();
      std::thread killer;
      if (comm.rank() == victim) {
        killer = std::thread([&] {
          std::this_thread::sleep_for(microseconds(1500 * (c + 1)));
          network.Kill(victim);
        });
      }
      Status end;
      for (uint64_t step = 0; end.ok(); ++step) {
        worker.Fill(step);
        const auto outcome = worker.TryStep(step);
        end = outcome.status();
        if (outcome.ok()) {
          EXPECT_FALSE(outcome->skipped) << outcome->reason;
        }
      }
      if (killer.joinable()) killer.join();
      EXPECT_EQ(end.code(), StatusCode::kUnavailable) << kCodecs[c] << ": " << end.ToString();
      if (comm.rank() == victim) return;
      EXPECT_NE(end.message().find("worker " + std::to_string(victim)), std::string::npos)
          << kCodecs[c] << ": " << end.ToString();
    };
    RunWorld(HostedWorldOptions(world, kLongSilence), work, &network);
  }
}

}  // namespace
}  // namespace elastiquant
