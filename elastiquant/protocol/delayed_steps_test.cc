#include "elastiquant/protocol/delayed_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/schedules_testing.h"
#include "elastiquant/protocol/coded_rounds_testing.h"

namespace elastiquant {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using DelayedKind = DelayedAction::Kind;
using DelayedValues = DelayedSteps::Values;

// A worker under SGD with momentum, whose weights begin at 1, 2, ...
struct DelayedWorker {
  DelayedWorker(const DelayedOptions& options, float momentum, size_t size = 2)
      : weights(Counted(size)),
        velocity(size),
        machine(DelayedSteps::Make(options, {std::span<float>(weights)},
                                   {.step =
                                        [this, momentum](const DelayedValues& g) {
                                          for (size_t i = 0; i < weights.size(); ++i) {
                                            velocity[i] = momentum * velocity[i] + g[0][i];
                                            weights[i] -= kRate * velocity[i];
                                          }
                                        },
                                    .save = [this] { saved = velocity; },
                                    .restore = [this] { velocity = saved; }})
                    .value()) {}
  DelayedWorker(const DelayedWorker&) = delete;

  static std::vector<float> Counted(size_t size) {
    std::vector<float> values(size);
    std::iota(values.begin(), values.end(), 1.0f);
    return values;
  }
  // Makes this worker what the other one was when it saved.
  void LoadFrom(DelayedWorker* other) {
    const size_t rounds = other->machine.rounds_under_way();
    std::vector<std::vector<float>> fields;
    other->machine.ForEachState(rounds, [&](auto, size_t, std::span<float> v) {
      fields.emplace_back(v.begin(), v.end());
    });
    size_t field = 0;
    machine.ForEachState(rounds, [&](auto, size_t, std::span<float> v) {
      std::ranges::copy(fields[field++], v.begin());
    });
    velocity = other->velocity;
    machine.Advance();
  }

  static constexpr float kRate = .25f;
  std::vector<float> weights, velocity, saved;
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
        sums.resize(std::max(sums.size(), round + 1));
        sums[round] = {0, 0};
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

  void End(int64_t step) {
    Act(workers[0]->machine.OnEnd(step));
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

TEST(DelayedStepsTest, GoesOnAfterItsEndAsOfARunThatIsMadeLonger) {
  for (const DelayedOptions options : {DelayedOptions{1, 0}, {1, 2}, {2, 3}, {3, 4}, {3, 1}}) {
    DelayedWorld world(options, 3, 0);
    int64_t step = 0;
    for (const int64_t end : {10, 11, 13, 30}) {
      while (step < end) world.Step(++step);
      world.End(end);
      for (size_t i = 0; i < 2; ++i) {
        double expected = i == 0 ? 1 : 2;
        for (const auto& gradients : world.own) {
          for (const auto& g : gradients) expected -= .25 * static_cast<double>(g[i]) / 3;
        }
        for (const auto& worker : world.workers) {
          ASSERT_NEAR(static_cast<double>(worker->weights[i]), expected, 1e-5)
              << "every " << options.every << ", delay " << options.delay << ", step " << end;
        }
      }
    }
  }
}

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

TEST(DelayedStepsTest, GoesOnFromWhatItSaved) {
  const DelayedOptions options{.every = 2, .delay = 5};
  DelayedWorld whole(options, 2, .9f), broken(options, 2, .9f);
  for (int64_t step = 1; step <= 15; ++step) {
    whole.Step(step);
    broken.Step(step);
    for (auto& worker : broken.workers) {
      auto next = std::make_unique<DelayedWorker>(options, .9f);
      next->LoadFrom(worker.get());
      worker = std::move(next);
    }
    for (size_t w = 0; w < 2; ++w) {
      ASSERT_EQ(whole.workers[w]->weights, broken.workers[w]->weights) << step;
    }
  }
}

// Workers at their own pace, each of which waits for a mean only where it must. Which one goes
// next, and which message comes, is the seed's.
class LateWorld {
 public:
  LateWorld(uint64_t seed, const DelayedOptions& options, size_t workers, float momentum,
            const std::string& codec)
      : chance_(seed),
        options_(options),
        momentum_(momentum),
        // A round may be sent while others are under way, each of which has a stream of its
        // own.
        streams_(static_cast<size_t>(options.delay / options.every + 1)),
        rounds_(codec, workers, streams_, kLength) {
    for (size_t w = 0; w < workers; ++w) {
      late_.push_back({.worker = NewWorker(), .unsent = std::vector<double>(kLength)});
    }
  }

  void Run(int64_t steps) {
    while (!rounds_.is_quiet() || !IsDone()) {
      if (!rounds_.is_quiet() && chance_.Of(.6)) {
        rounds_.Deliver(chance_.Below(1 << 20));
      } else {
        GoOn(&late_[chance_.Below(late_.size())], steps);
      }
      if (testing::Test::HasFailure()) return;
    }
  }

  // What was given to codecs was sent or is remembered, no gradient was left out, and the
  // shared model is what one worker makes of the means, one after the other.
  void Check() {
    rounds_.Check();
    const std::vector<double> expected = Replayed();
    for (Late& late : late_) {
      late.worker->machine.ShowShared();
      ASSERT_EQ(late.worker->weights, late_[0].worker->weights);
      for (size_t i = 0; i < kLength; ++i) {
        ASSERT_NEAR(late.worker->weights[i], expected[i], 1e-4);
        ASSERT_EQ(late.unsent[i], 0);
      }
    }
  }

 private:
  static constexpr size_t kLength = 19;

  struct Late {
    std::unique_ptr<DelayedWorker> worker;
    std::vector<double> unsent;  // sum of its gradients that are in no round yet
    int64_t at = 0;              // steps made
    std::vector<DelayedAction> todo = {};
    size_t applied = 0;  // means
    bool has_ended = false;
  };

  std::unique_ptr<DelayedWorker> NewWorker() const {
    return std::make_unique<DelayedWorker>(options_, momentum_, kLength);
  }
  size_t StreamOf(int64_t round) const { return static_cast<size_t>(round) % streams_; }
  bool IsDone() const {
    return std::ranges::all_of(
        late_, [](const Late& late) { return late.has_ended && late.todo.empty(); });
  }

  void GoOn(Late* late, int64_t steps) {
    if (!late->todo.empty()) {
      Act(late);
    } else if (late->at < steps) {
      Train(late);
    } else if (!late->has_ended) {
      late->has_ended = true;
      late->todo = late->worker->machine.OnEnd(steps);
    }
    if (late->todo.empty()) late->worker->machine.Advance();
  }

  // The gradient depends on the weights, so that any slip in these shows.
  void Train(Late* late) {
    if (chance_.Of(.2)) Replace(late);
    std::vector<float> gradient;
    for (const float x : late->worker->weights) {
      gradient.push_back(x * .1f + chance_.Between(-1, 1));
      late->unsent[gradient.size() - 1] += static_cast<double>(gradient.back());
    }
    late->todo = late->worker->machine.OnGradient(++late->at, {gradient});
  }

  // Kills the worker, and starts another one from what it had saved.
  void Replace(Late* late) {
    auto next = NewWorker();
    next->LoadFrom(late->worker.get());
    late->worker = std::move(next);
    rounds_.Restart(static_cast<size_t>(late - late_.data()));
  }

  void Act(Late* late) {
    const DelayedAction action = late->todo.front();
    if (action.kind == DelayedKind::kSend) {
      Send(late, action.round);
    } else if (!Apply(late, action.round)) {
      return;  // it waits
    }
    late->todo.erase(late->todo.begin());
  }

  void Send(Late* late, int64_t round) {
    std::vector<float> sum = late->worker->machine.Send()[0];
    for (size_t i = 0; i < kLength; ++i) {
      ASSERT_NEAR(static_cast<double>(sum[i]), std::exchange(late->unsent[i], 0), 1e-4);
    }
    if (chance_.Of(.02)) sum[0] = std::nanf("");  // then the round is lost
    rounds_.Send(static_cast<size_t>(late - late_.data()), StreamOf(round), round, sum);
  }

  bool Apply(Late* late, int64_t round) {
    const auto w = static_cast<size_t>(late - late_.data());
    const auto arrived = rounds_.Take(w, StreamOf(round), round);
    if (!arrived) return false;
    const DelayedValues mean{arrived->mean};
    late->worker->machine.Apply(arrived->is_lost ? nullptr : &mean);
    late->worker->machine.ShowShared();
    if (late->applied == shared_.size()) shared_.push_back(late->worker->weights);
    EXPECT_EQ(late->worker->weights, shared_[late->applied++]) << "after round " << round;
    late->worker->machine.ShowLocal();
    return true;
  }

  // The shared model by the optimiser's formula.
  std::vector<double> Replayed() const {
    const std::vector<float> start = DelayedWorker::Counted(kLength);
    std::vector<double> weights(start.begin(), start.end()), velocity(kLength);
    for (int64_t round = 0; round < static_cast<int64_t>(shared_.size()); ++round) {
      const auto& means = rounds_.means(StreamOf(round));
      const auto mean = means.find(round);
      if (mean == means.end()) continue;  // it was lost
      for (size_t i = 0; i < kLength; ++i) {
        velocity[i] =
            static_cast<double>(momentum_) * velocity[i] + static_cast<double>(mean->second[i]);
        weights[i] -= static_cast<double>(DelayedWorker::kRate) * velocity[i];
      }
    }
    return weights;
  }

  Chance chance_;
  const DelayedOptions options_;
  const float momentum_;
  const size_t streams_;
  CodedRounds rounds_;
  std::vector<Late> late_;
  std::vector<std::vector<float>> shared_;  // the shared model after each round
};

void RunDelayedSeed(uint64_t seed) {
  Chance chance(Mix64(seed) + 1);
  const DelayedOptions options{.every = static_cast<int64_t>(1 + chance.Below(4)),
                               .delay = static_cast<int64_t>(chance.Below(8))};
  const size_t workers = 1 + chance.Below(5);
  LateWorld world(seed, options, workers, chance.From<float>({0, .5f, .9f}),
                  chance.From(CodecsOfRounds()));
  world.Run(static_cast<int64_t>(1 + chance.Below(25)));
  if (!testing::Test::HasFailure()) world.Check();
}

// A seed that fails is run alone with DELAYED_STEPS_SEED=N protocol_test.
TEST(DelayedStepsTest, SumOfUpdatesIsSumOfSentAndRememberedInAnyOrder) {
  ForEachSchedule("DELAYED_STEPS_SEED", 1000, RunDelayedSeed);
}

}  // namespace
}  // namespace elastiquant
