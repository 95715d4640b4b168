#include "elastiquant/protocol/local_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/schedules_testing.h"
#include "elastiquant/protocol/coded_rounds_testing.h"

namespace elastiquant {
namespace {

using FragmentKind = FragmentAction::Kind;
using Floats = std::vector<float>;

// One worker with one parameter in each fragment.
struct OneWorker {
  OneWorker(const LocalStepsOptions& options, std::vector<Floats> start)
      : local(std::move(start)), machine(MakeMachine(options)) {}

  LocalSteps MakeMachine(const LocalStepsOptions& options) {
    std::vector<std::span<float>> spans(local.begin(), local.end());
    std::vector<size_t> fragments;
    for (size_t p = 0; p < local.size(); ++p) {
      fragments.push_back(p % options.schedule.fragments);
    }
    return LocalSteps::Make(options, std::move(spans), std::move(fragments)).value();
  }
  Floats Send(size_t fragment) {
    Floats sent(local[fragment].size());
    machine.Send(fragment, [&](size_t) { return std::span<float>(sent); });
    return sent;
  }
  void Apply(size_t fragment, Floats mean) {
    machine.Apply(fragment, [&](size_t) { return std::span<float>(mean); });
  }

  std::vector<Floats> local;
  LocalSteps machine;
};

TEST(LocalStepsTest, LocalSgdGoesOnFromTheMeanOfTheModels) {
  OneWorker worker({.schedule = {.every = 2}}, {{4, 0}});
  worker.local[0] = {3, 2};
  EXPECT_EQ(worker.Send(0), (Floats{1, -2}));
  worker.Apply(0, {2, -1});  // the others are at {1, 0} on average
  EXPECT_EQ(worker.local[0], (Floats{2, 1}));
}

TEST(LocalStepsTest, DiLoCoMovesTheAnchorByNesterovsMomentum) {
  OneWorker worker({.schedule = {.every = 2}, .outer = {.learning_rate = .5, .momentum = .5}},
                   {{1}});
  worker.Apply(0, {1});  // m = 1, anchor = 1 - .5 (1 + .5)
  EXPECT_FLOAT_EQ(worker.local[0][0], .25f);
  worker.Apply(0, {2});  // m = 2.5, anchor = .25 - .5 (2 + 1.25)
  EXPECT_FLOAT_EQ(worker.local[0][0], -1.375f);
}

TEST(LocalStepsTest, ADelayedMeanIsMixedWithWhatWasLearntSince) {
  OneWorker worker({.schedule = {.every = 4, .fragments = 2, .delay = 1}, .mix = .25},
                   {{0}, {10}});
  worker.local = {{-2}, {8}};
  EXPECT_EQ(worker.Send(0), (Floats{2}));
  worker.local[0][0] = -3;
  worker.Apply(0, {4});
  EXPECT_FLOAT_EQ(worker.local[0][0], .25f * -3 + .75f * -4);
  EXPECT_EQ(worker.local[1][0], 8);  // of the other fragment
  EXPECT_EQ(worker.Send(1), (Floats{2}));
}

// Its own part counts at once and the others' a round later: without momentum the anchor is
// the start, less all means but the last, less its own share of the last.
TEST(LocalStepsTest, EagerUpdatesPutTheOwnPartFirst) {
  OneWorker worker({.schedule = {.every = 2, .delay = 2}, .eager = true, .share = .25}, {{0}});
  worker.local[0][0] = -4;
  EXPECT_EQ(worker.Send(0), (Floats{4}));
  EXPECT_FLOAT_EQ(worker.local[0][0], -1);  // .25 * 4
  worker.local[0][0] = -9;                  // 8 further
  worker.Apply(0, {6});
  EXPECT_FLOAT_EQ(worker.local[0][0], -9);
  EXPECT_EQ(worker.Send(0), (Floats{8}));
  EXPECT_FLOAT_EQ(worker.local[0][0], -6 - 2);
  worker.machine.ShowShared();
  EXPECT_FLOAT_EQ(worker.local[0][0], -6);
  worker.machine.ShowLocal();
  EXPECT_FLOAT_EQ(worker.local[0][0], -8);
}

TEST(LocalStepsTest, ARoundWithoutAMeanLosesItsWorkAndNothingElse) {
  OneWorker worker({.schedule = {.every = 2}, .outer = {.momentum = .5}}, {{1}});
  worker.Apply(0, {1});
  const float anchor = worker.local[0][0];
  worker.local[0][0] = std::nanf("");
  EXPECT_TRUE(std::isnan(worker.Send(0)[0]));
  worker.machine.Apply(0, nullptr);
  EXPECT_EQ(worker.local[0][0], anchor);
}

TEST(LocalStepsTest, RefusesOptionsOutOfRange) {
  Floats values(3);
  const auto fail = [&](const LocalStepsOptions& options, std::vector<size_t> fragments) {
    return !LocalSteps::Make(options, {std::span<float>(values)}, std::move(fragments)).ok();
  };
  EXPECT_FALSE(fail({}, {0}));
  EXPECT_TRUE(fail({}, {1}));
  EXPECT_TRUE(fail({}, {}));
  EXPECT_TRUE(fail({.mix = 1}, {0}));
  EXPECT_TRUE(fail({.share = 0}, {0}));
  EXPECT_TRUE(fail({.outer = {.learning_rate = -1}}, {0}));
  EXPECT_TRUE(fail({.outer = {.momentum = 1}}, {0}));
  EXPECT_TRUE(fail({.schedule = {.every = 4, .delay = 1}, .eager = true}, {0}));
}

// Workers over a network in memory, each at its own pace: a worker waits for a mean only where
// it must, so that in between any may be ahead. Which one goes next is the seed's.
class LocalWorld {
 public:
  static constexpr size_t kLength = 37;

  LocalWorld(uint64_t seed, const LocalStepsOptions& options, size_t workers,
             const std::string& codec)
      : chance_(seed),
        options_(options),
        rounds_(codec, workers, options.schedule.fragments, kLength),
        at_(workers),
        todo_(workers) {
    for (size_t w = 0; w < workers; ++w) {
      std::vector<Floats> start(options.schedule.fragments, Floats(kLength, 1.f));
      workers_.push_back(std::make_unique<OneWorker>(options, start));
    }
  }

  void Run(int64_t steps) {
    while (!rounds_.is_quiet() || !IsDone(steps)) {
      if (!rounds_.is_quiet() && chance_.Of(.6)) {
        rounds_.Deliver(chance_.Below(1 << 20));
        continue;
      }
      const size_t w = chance_.Below(workers_.size());
      if (!todo_[w].empty()) {
        Act(w);
      } else if (at_[w] < steps) {
        Train(w, steps);
      }
    }
  }

  // What was given to codecs was sent or is remembered, and the shared model is what the outer
  // optimiser makes of the means, one after the other.
  void Check() {
    rounds_.Check();
    for (auto& worker : workers_) worker->machine.ShowShared();
    for (size_t f = 0; f < options_.schedule.fragments; ++f) {
      const std::vector<double> expected = Replayed(f);
      for (size_t w = 0; w < workers_.size(); ++w) {
        ASSERT_EQ(workers_[w]->local[f], workers_[0]->local[f]) << "worker " << w;
      }
      for (size_t i = 0; i < kLength; ++i) {
        ASSERT_NEAR(static_cast<double>(workers_[0]->local[f][i]), expected[i], 2e-4);
      }
    }
  }

 private:
  bool IsDone(int64_t steps) const {
    return std::ranges::all_of(at_, [&](int64_t at) { return at == steps; }) &&
           std::ranges::all_of(todo_, [](const auto& todo) { return todo.empty(); });
  }

  void Train(size_t w, int64_t steps) {
    if (chance_.Of(.2)) Replace(w);
    OneWorker& worker = *workers_[w];
    for (Floats& values : worker.local) {
      for (float& v : values) v -= chance_.Between(0, .1f);
    }
    if (chance_.Of(.02)) worker.local[0][0] = std::nanf("");  // then a round is lost
    const int64_t step = ++at_[w];
    todo_[w] = worker.machine.schedule().After(step);
    if (step != steps) return;
    for (const FragmentAction& action : worker.machine.schedule().AtEnd(step))
      todo_[w].push_back(action);
  }

  // Kills the worker, and starts another one from what it had saved.
  void Replace(size_t w) {
    auto next = std::make_unique<OneWorker>(options_, workers_[w]->local);
    std::map<std::pair<std::string, size_t>, Floats> saved;
    workers_[w]->machine.ForEachState([&](std::string_view name, size_t p, auto values) {
      saved[{std::string(name), p}].assign(values.begin(), values.end());
    });
    next->machine.ForEachState([&](std::string_view name, size_t p, std::span<float> values) {
      std::ranges::copy(saved.at({std::string(name), p}), values.begin());
    });
    workers_[w] = std::move(next);
    rounds_.Restart(w);
  }

  void Act(size_t w) {
    const FragmentAction action = todo_[w].front();
    if (action.kind == FragmentKind::kSend) {
      rounds_.Send(w, action.fragment, action.round, workers_[w]->Send(action.fragment));
    } else {
      const auto arrived = rounds_.Take(w, action.fragment, action.round);
      if (!arrived) return;  // it waits
      if (arrived->is_lost) {
        workers_[w]->machine.Apply(action.fragment, nullptr);
      } else {
        workers_[w]->Apply(action.fragment, arrived->mean);
      }
    }
    todo_[w].erase(todo_[w].begin());
  }

  // A fragment of the shared model by Nesterov's formula.
  std::vector<double> Replayed(size_t fragment) const {
    std::vector<double> anchor(kLength, 1), momentum(kLength);
    const auto& [rate, factor] = options_.outer;
    for (const auto& [round, mean] : rounds_.means(fragment)) {
      for (size_t i = 0; i < kLength; ++i) {
        const auto moved = static_cast<double>(mean[i]);
        momentum[i] = factor * momentum[i] + moved;
        anchor[i] -= rate * (moved + factor * momentum[i]);
      }
    }
    return anchor;
  }

  Chance chance_;
  const LocalStepsOptions options_;
  CodedRounds rounds_;
  std::vector<std::unique_ptr<OneWorker>> workers_;
  std::vector<int64_t> at_;                        // by worker: local steps made
  std::vector<std::vector<FragmentAction>> todo_;  // by worker
};

// Local SGD, and with an outer rate and momentum DiLoCo, which may be late or eager.
void RunLocalSeed(uint64_t seed) {
  Chance chance(Mix64(seed) + 1);
  LocalStepsOptions options;
  options.schedule.every = static_cast<int64_t>(1 + chance.Below(6));
  const auto every = static_cast<size_t>(options.schedule.every);
  options.schedule.fragments = 1 + chance.Below(every);
  options.schedule.delay = static_cast<int64_t>(chance.Below(every + 1));
  options.mix = chance.Of(.5) ? 0 : .5;
  if (chance.Of(.6)) {
    options.outer = {.learning_rate = chance.From<double>({.3, .7, 1}),
                     .momentum = chance.From<double>({.5, .9})};
  }
  const size_t workers = 1 + chance.Below(6);
  if (chance.Of(.25)) {
    options.schedule.fragments = 1;
    options.schedule.delay = options.schedule.every;
    options.mix = 0;
    options.eager = true;
  }
  options.share = 1 / static_cast<double>(workers);
  LocalWorld world(seed, options, workers, chance.From(CodecsOfRounds()));
  world.Run(static_cast<int64_t>(1 + chance.Below(25)));
  world.Check();
}

// A seed that fails is run alone with LOCAL_STEPS_SEED=N protocol_test.
TEST(LocalStepsTest, SumOfUpdatesIsSumOfSentAndRememberedInAnyOrder) {
  ForEachSchedule("LOCAL_STEPS_SEED", 1000, RunLocalSeed);
}

}  // namespace
}  // namespace elastiquant
