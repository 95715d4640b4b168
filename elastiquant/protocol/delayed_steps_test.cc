#include "elastiquant/protocol/delayed_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using DelayedKind = DelayedAction::Kind;
using DelayedValues = DelayedSteps::Values;

// A worker with two weights under SGD with momentum.
struct DelayedWorker {
  DelayedWorker(const DelayedOptions& options, float momentum)
      : machine(DelayedSteps::Make(options, {std::span<float>(weights)},
                                   {.step =
                                        [this, momentum](const DelayedValues& g) {
                                          for (size_t i = 0; i < 2; ++i) {
                                            velocity[i] = momentum * velocity[i] + g[0][i];
                                            weights[i] -= kRate * velocity[i];
                                          }
                                        },
                                    .save = [this] { saved = velocity; },
                                    .restore = [this] { velocity = saved; }})
                    .value()) {}
  DelayedWorker(const DelayedWorker&) = delete;

  static constexpr float kRate = .25f;
  std::vector<float> weights{1, 2}, velocity{0, 0}, saved;
  DelayedSteps machine;
};

TEST(DelayedStepsTest, SendsAtOnceAndAppliesLater) {
  DelayedWorker worker({.every = 2, .delay = 3}, 0);
  const std::vector<float> g{1, 1};
  const auto take = [&](int64_t step) {
    const auto actions = worker.machine.OnGradient(step, {std::span<const float>(g)});
    const DelayedValues mean{{0, 0}};
    for (const DelayedAction& action : actions) {
      action.kind == DelayedKind::kSend ? void(worker.machine.Send())
                                        : worker.machine.Apply(&mean);
    }
    return actions;
  };
  EXPECT_THAT(take(1), IsEmpty());
  EXPECT_THAT(take(2), ElementsAre(DelayedAction{DelayedKind::kSend, 0}));
  EXPECT_THAT(take(3), IsEmpty());
  EXPECT_THAT(take(4), ElementsAre(DelayedAction{DelayedKind::kSend, 1}));
  EXPECT_THAT(take(5), ElementsAre(DelayedAction{DelayedKind::kApply, 0}));
  EXPECT_EQ(worker.machine.MostUnderWay(), 2);
  EXPECT_THAT(worker.machine.OnEnd(5), ElementsAre(DelayedAction{DelayedKind::kApply, 1},
                                                   DelayedAction{DelayedKind::kSend, 2},
                                                   DelayedAction{DelayedKind::kApply, 2}));
  EXPECT_FALSE(DelayedSteps::Make({.every = 0}, {}, {}).ok());
  EXPECT_FALSE(DelayedSteps::Make({.delay = -1}, {}, {}).ok());
}

// Several workers with gradients that depend on their weights, so that any slip in these shows.
struct DelayedWorld {
  DelayedWorld(const DelayedOptions& delayed, size_t count, float momentum)
      : options(delayed), m(momentum) {
    for (size_t w = 0; w < count; ++w) {
      workers.push_back(std::make_unique<DelayedWorker>(options, m));
    }
    own.resize(count);
  }
  std::vector<float> Gradient(size_t w, int64_t step) const {
    std::vector<float> g;
    for (const float x : workers[w]->weights) {
      g.push_back(x * .1f + std::sin(static_cast<float>(step) + 3 * static_cast<float>(w)));
    }
    return g;
  }
  void Act(const std::vector<DelayedAction>& actions) {
    for (const DelayedAction& action : actions) {
      const auto round = static_cast<size_t>(action.round);
      if (action.kind == DelayedKind::kSend) {
        sums.resize(round + 1, {0, 0});
        for (auto& worker : workers) {
          const DelayedValues& sent = worker->machine.Send();
          for (size_t i = 0; i < 2; ++i) sums[round][i] += sent[0][i];
        }
        continue;
      }
      DelayedValues mean{sums[round]};
      for (float& v : mean[0]) v /= static_cast<float>(workers.size());
      for (auto& worker : workers) worker->machine.Apply(&mean);
      ++applied;
    }
  }
  void Step(int64_t step) {
    std::vector<DelayedAction> actions;
    for (size_t w = 0; w < workers.size(); ++w) {
      own[w].push_back(Gradient(w, step));
      actions = workers[w]->machine.OnGradient(step, {std::span<const float>(own[w].back())});
    }
    Act(actions);
    for (auto& worker : workers) worker->machine.Advance();
  }

  const DelayedOptions options;
  const float m;
  std::vector<std::unique_ptr<DelayedWorker>> workers;
  std::vector<std::vector<std::vector<float>>> own;  // by worker and step
  std::vector<std::vector<float>> sums;              // by round
  size_t applied = 0;
};

// Under SGD the weights are the start, less all means that have come, less the own gradients
// that have not.
TEST(DelayedStepsTest, IsThePublishedUpdateUnderSgd) {
  for (const DelayedOptions options : {DelayedOptions{1, 0}, {1, 1}, {1, 4}, {3, 2}, {2, 5}}) {
    DelayedWorld world(options, 3, 0);
    for (int64_t step = 1; step <= 20; ++step) {
      world.Step(step);
      const auto all = static_cast<size_t>(step);
      for (size_t w = 0; w < 3; ++w) {
        for (size_t i = 0; i < 2; ++i) {
          double expected = i == 0 ? 1 : 2;
          for (size_t r = 0; r < world.applied; ++r) {
            expected -= .25 * static_cast<double>(world.sums[r][i]) / 3;
          }
          const auto first = world.applied * static_cast<size_t>(options.every);
          for (size_t s = first; s < all; ++s) {
            expected -= .25 * static_cast<double>(world.own[w][s][i]);
          }
          ASSERT_NEAR(static_cast<double>(world.workers[w]->weights[i]), expected, 1e-5);
        }
      }
    }
  }
}

// All have the same shared model at any time, and in the end nothing is left out: it is what
// one worker makes of the means, one after the other.
// With momentum, too: no gradient is at weights that another one has yet to move.
TEST(DelayedStepsTest, WorkersWithTheSameGradientsTrainAsIfNothingWereLate) {
  for (const DelayedOptions options : {DelayedOptions{1, 1}, {1, 4}, {1, 7}}) {
    DelayedWorld late(options, 1, .9f), prompt({1, 0}, 1, .9f);
    for (int64_t step = 1; step <= 30; ++step) {
      late.Step(step);
      prompt.Step(step);
      for (size_t i = 0; i < 2; ++i) {
        ASSERT_NEAR(late.workers[0]->weights[i], prompt.workers[0]->weights[i], 1e-4)
            << "delay " << options.delay << ", step " << step;
      }
    }
  }
}

TEST(DelayedStepsTest, TheSharedModelIsTheSameOnAllAndLosesNothing) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, 0, 0, 1));
    const DelayedOptions options{.every = 1 + RandomBits(keys, 0) % 4,
                                 .delay = RandomBits(keys, 1) % 7};
    DelayedWorld world(options, 1 + RandomBits(keys, 2) % 4, .9f);
    const int64_t steps = 1 + RandomBits(keys, 3) % 20;
    for (int64_t step = 1; step <= steps; ++step) {
      world.Step(step);
      for (auto& worker : world.workers) worker->machine.ShowShared();
      for (auto& worker : world.workers) {
        ASSERT_EQ(worker->weights, world.workers[0]->weights) << "seed " << seed;
      }
      for (auto& worker : world.workers) worker->machine.ShowLocal();
    }
    world.Act(world.workers[0]->machine.OnEnd(steps));
    for (auto& worker : world.workers) worker->machine.Advance();
    ASSERT_EQ(world.applied, world.sums.size());
    DelayedWorker alone({}, 0);
    std::vector<float> velocity{0, 0};
    for (const auto& sum : world.sums) {
      for (size_t i = 0; i < 2; ++i) {
        velocity[i] = .9f * velocity[i] + sum[i] / static_cast<float>(world.workers.size());
        alone.weights[i] -= .25f * velocity[i];
      }
    }
    for (auto& worker : world.workers) {
      for (size_t i = 0; i < 2; ++i) {
        ASSERT_NEAR(worker->weights[i], alone.weights[i], 1e-4) << "seed " << seed;
      }
    }
  }
}

TEST(DelayedStepsTest, GoesOnFromWhatItSaved) {
  const DelayedOptions options{.every = 2, .delay = 5};
  DelayedWorld whole(options, 2, .9f), broken(options, 2, .9f);
  for (int64_t step = 1; step <= 15; ++step) {
    whole.Step(step);
    broken.Step(step);
    for (auto& worker : broken.workers) {
      auto next = std::make_unique<DelayedWorker>(options, .9f);
      const size_t rounds = worker->machine.rounds_under_way();
      std::vector<std::vector<float>> saved;
      worker->machine.ForEachState(rounds, [&](auto, size_t, std::span<float> v) {
        saved.emplace_back(v.begin(), v.end());
      });
      size_t field = 0;
      next->machine.ForEachState(rounds, [&](auto, size_t, std::span<float> v) {
        std::ranges::copy(saved[field++], v.begin());
      });
      next->velocity = worker->velocity;
      next->machine.Advance();
      worker = std::move(next);
    }
    for (size_t w = 0; w < 2; ++w) {
      ASSERT_EQ(whole.workers[w]->weights, broken.workers[w]->weights) << step;
    }
  }
}

}  // namespace
}  // namespace elastiquant
