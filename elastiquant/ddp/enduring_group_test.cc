#include "elastiquant/ddp/enduring_group.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <latch>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/base/bytes.h"
#include "elastiquant/layers/model_mean.h"
#include "elastiquant/net/memory/memory_network.h"

namespace elastiquant {
namespace {

constexpr int kWorkers = 4, kMeans = 12;

// Workers that only average, of which one dies at some moment.
class AveragingWorld {
 public:
  struct Outcome {
    Status status;
    std::vector<std::vector<float>> means = {};
    std::vector<int> lost = {};
  };

  AveragingWorld() { store_ = network_.At()->HostStore(0, Reach::kThisMachine).value(); }

  std::vector<Outcome> Run(bool goes_on, int victim, std::chrono::microseconds after) {
    std::vector<Outcome> outcomes(kWorkers);
    std::latch connected(kWorkers), dead(1);
    std::vector<std::thread> threads;
    for (int w = 0; w < kWorkers; ++w) {
      threads.emplace_back([&, w] {
        Outcome& outcome = outcomes[static_cast<size_t>(w)];
        outcome.status = Live(w, goes_on, connected, dead, outcome);
      });
    }
    connected.wait();
    std::this_thread::sleep_for(after);
    network_.Kill(victim);
    dead.count_down();
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

 private:
  // The last mean is one after the death.
  Status Live(int worker, bool goes_on, std::latch& connected, std::latch& dead,
              Outcome& outcome) {
    CommunicatorOptions options;
    options.rank = worker;
    options.world_size = kWorkers;
    options.network = network_.At(worker);
    options.store_port = store_->port();
    options.store_is_external = true;
    options.timeout = std::chrono::seconds(20);  // a death is heard of at once
    options.connect_timeout = std::chrono::minutes(1);
    auto group = EnduringGroup::Connect(options, goes_on);
    connected.count_down();
    EQ_RETURN_IF_ERROR(group.status());
    const EnduringGroup::Ties ties{.leave = [] {},
                                   .join = [](const std::vector<int>&) { return Status(); }};
    for (int m = 0; m < kMeans; ++m) {
      if (m + 1 == kMeans) dead.wait();
      const std::vector<float> own(3, static_cast<float>(10 * m + worker));
      EQ_ASSIGN_OR_RETURN(const std::vector<uint8_t> agreed,
                          (*group)->Agree(ties, [&] { return MeanIn(**group, own); }));
      std::vector<float>& mean = outcome.means.emplace_back(3);
      if (agreed.size() != 3 * sizeof(float)) return Internal("bytes are missing");
      std::memcpy(mean.data(), agreed.data(), agreed.size());
    }
    outcome.lost = (*group)->lost();
    return {};
  }

  static Result<std::vector<uint8_t>> MeanIn(EnduringGroup& group, std::span<const float> own) {
    EQ_ASSIGN_OR_RETURN(const ModelMean mean, MeanOfModels(&group.comm(), own));
    return BytesOf(std::span(mean.values));
  }

  MemoryNetwork network_;
  std::unique_ptr<StoreHost> store_;
};

// Also if it dies when some have the mean and others lack it.
TEST(EnduringGroupTest, AllThatAreLeftHaveTheSameMeans) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 24; ++trial) {
    const int victim = static_cast<int>(random() % kWorkers);
    const std::chrono::microseconds after(random() % 5000);
    AveragingWorld world;
    const auto outcomes = world.Run(true, victim, after);
    const AveragingWorld::Outcome& first = outcomes[victim == 0 ? 1 : 0];
    for (int w = 0; w < kWorkers; ++w) {
      if (w == victim) continue;
      SCOPED_TRACE("trial " + std::to_string(trial) + ", worker " + std::to_string(w));
      const AveragingWorld::Outcome& outcome = outcomes[static_cast<size_t>(w)];
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
      ASSERT_EQ(outcome.means.size(), static_cast<size_t>(kMeans));
      EXPECT_EQ(outcome.means, first.means);
      for (int m = 0; m < kMeans; ++m) {
        const float of_all = static_cast<float>(10 * m) + 1.5F;
        const float of_those_left =
            static_cast<float>(10 * m) + static_cast<float>(6 - victim) / 3.0F;
        const float mean = outcome.means[static_cast<size_t>(m)][0];
        EXPECT_TRUE(mean == of_all || std::abs(mean - of_those_left) < 1e-4F) << mean;
      }
      EXPECT_EQ(outcome.lost, std::vector<int>{victim});
    }
  }
}

TEST(EnduringGroupTest, AGroupThatDoesNotGoOnEndsWithItsFirstLoss) {
  AveragingWorld world;
  const auto outcomes = world.Run(false, 2, std::chrono::microseconds(0));
  for (int w = 0; w < kWorkers; ++w) {
    EXPECT_EQ(outcomes[static_cast<size_t>(w)].status.code(), StatusCode::kUnavailable) << w;
  }
}

}  // namespace
}  // namespace elastiquant
