// Workers of DdpEngine that die, freeze, fail or leave, in every place: the others end, and all
// name the right one. The same with DDP and real processes is in fault_test.py of the package.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/ddp/engine_testing.h"
#include "elastiquant/net/memory/memory_network.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

enum class DdpFailure { kKilled, kFrozen, kFails, kLeaves };
enum class DdpPlace { kBeforeAnyStep, kBetweenSteps, kWithinAStep, kWithinAnExactStep };

constexpr std::pair<DdpFailure, const char*> kFailures[] = {{DdpFailure::kKilled, "Killed"},
                                                            {DdpFailure::kFrozen, "Frozen"},
                                                            {DdpFailure::kFails, "Fails"},
                                                            {DdpFailure::kLeaves, "Leaves"}};
constexpr std::pair<DdpPlace, const char*> kPlaces[] = {
    {DdpPlace::kBeforeAnyStep, "BeforeAnyStep"},
    {DdpPlace::kBetweenSteps, "BetweenSteps"},
    {DdpPlace::kWithinAStep, "WithinAStep"},
    {DdpPlace::kWithinAnExactStep, "WithinAnExactStep"}};

struct DdpCase {
  std::string name;
  int world;
  int victim;
  DdpFailure failure;
  DdpPlace place;
};

std::vector<DdpCase> DdpCases() {
  std::vector<DdpCase> cases;
  for (const int world : {2, 16}) {
    for (const int victim : {0, world - 1}) {
      for (const auto& [failure, failure_name] : kFailures) {
        for (const auto& [place, place_name] : kPlaces) {
          cases.push_back({"Worker" + std::to_string(victim) + "Of" + std::to_string(world) +
                               failure_name + place_name,
                           world, victim, failure, place});
        }
      }
    }
  }
  return cases;
}

class DdpFaultMatrix : public testing::TestWithParam<DdpCase> {
 protected:
  // The number of steps before the failure.
  static int StepsBefore() {
    switch (GetParam().place) {
      case DdpPlace::kBeforeAnyStep:
        return 0;
      case DdpPlace::kBetweenSteps:
      case DdpPlace::kWithinAStep:
        return 3;
      case DdpPlace::kWithinAnExactStep:
        return kFirstExact + 1;
    }
    return 0;
  }

  // Steps are compressed, but where the failure is to strike one that is not.
  Worker Make(const CommunicatorOptions& options, int rank) {
    const bool switches = GetParam().place == DdpPlace::kWithinAnExactStep;
    return {options, rank, "elastic:bits=4|ef",
            switches ? Switching(rank, sum_) : DdpOptions()};
  }

  void Fail(Worker& worker, int rank) {
    switch (GetParam().failure) {
      case DdpFailure::kKilled:
        return network_.Kill(rank);
      case DdpFailure::kFrozen:
        return network_.Freeze(rank);
      case DdpFailure::kFails:
        return worker.engine->Close("unused", Internal("the data ran out"));
      case DdpFailure::kLeaves:
        return worker.engine->Close("its script ended");
    }
  }

  // Only who freezes is found out by the time that he is silent for. Sixteen workers on two
  // cores under a sanitizer are silent for a second now and then.
  static milliseconds Timeout() {
    return GetParam().failure == DdpFailure::kFrozen ? milliseconds(4000) : milliseconds(20000);
  }

  // What the step after the failure raises.
  static std::string Error(Worker& worker, int step) {
    try {
      (void)worker.Step(step, kRebuilt);
    } catch (const c10::DistBackendError& e) {
      return e.what_without_backtrace();
    } catch (const std::exception& e) {
      return std::string("not a DistBackendError: ") + e.what();
    }
    return "nothing was raised";
  }

  MemoryNetwork network_{{.most_delay = std::chrono::microseconds(300)}};
  UsersSum sum_{GetParam().world};
  std::barrier<> together_{GetParam().world};
};

TEST_P(DdpFaultMatrix, TheOthersEndAndNameTheWorker) {
  const DdpCase& c = GetParam();
  CommunicatorOptions options = HostedWorldOptions(c.world, Timeout());
  std::vector<std::string> errors(static_cast<size_t>(c.world));
  const auto work = [&](int rank) {
    CommunicatorOptions own = options;
    own.network = network_.At(rank);
    Worker worker = Make(own, rank);
    together_.arrive_and_wait();  // all have connected
    const int steps = StepsBefore();
    for (int step = 0; step < steps; ++step) (void)worker.Step(step, kRebuilt);
    together_.arrive_and_wait();  // who fails ends what others still have to do
    if (rank != c.victim) {
      errors[static_cast<size_t>(rank)] = Error(worker, steps);
      return;
    }
    if (c.place == DdpPlace::kWithinAStep || c.place == DdpPlace::kWithinAnExactStep) {
      (void)worker.engine->Reduce(0, false, at::zeros({5004}), kRebuilt[0]);
    }
    Fail(worker, rank);
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < c.world; ++r) threads.emplace_back(work, r);
  for (int r = 0; r < c.world; ++r) {
    if (r != c.victim) threads[static_cast<size_t>(r)].join();
  }
  network_.Thaw(c.victim);
  threads[static_cast<size_t>(c.victim)].join();

  const std::string victim = "worker " + std::to_string(c.victim);
  const char* cause = c.failure == DdpFailure::kFails    ? "the data ran out"
                      : c.failure == DdpFailure::kLeaves ? "its script ended"
                                                         : "";
  for (int r = 0; r < c.world; ++r) {
    if (r == c.victim) continue;
    const std::string& error = errors[static_cast<size_t>(r)];
    EXPECT_TRUE(error.starts_with("elastiquant: ")) << "worker " << r << ": " << error;
    EXPECT_NE(error.find(victim), std::string::npos) << "worker " << r << ": " << error;
    EXPECT_NE(error.find(cause), std::string::npos) << "worker " << r << ": " << error;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DdpFaultMatrix, testing::ValuesIn(DdpCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace elastiquant
