#include "elastiquant/policy/threshold_tracker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "elastiquant/policy/policy_testing.h"
#include "elastiquant/policy/ratios.h"

namespace elastiquant::policy {
namespace {

// Workers that send what exceeds their thresholds and remember the rest.
class Workers {
 public:
  Workers(uint64_t seed, size_t workers, size_t coordinates, double spread)
      : draws_(seed, 0), memory_(workers, std::vector<double>(coordinates)) {
    for (size_t i = 0; i < coordinates; ++i) {
      scale_.push_back(std::exp(spread * draws_.Normal()));
      drift_.push_back(.3 * draws_.Normal());
    }
  }

  // Returns the share of all coordinates that is sent at these thresholds.
  double Round(double common, const std::vector<double>& relative) {
    size_t sent = 0;
    for (size_t w = 0; w < memory_.size(); ++w) {
      for (size_t i = 0; i < scale_.size(); ++i) {
        double& value = memory_[w][i];
        value += scale_[i] * (drift_[i] + draws_.Normal());
        if (std::abs(value) < common * relative[w]) continue;
        value = 0;
        ++sent;
      }
    }
    return static_cast<double>(sent) / static_cast<double>(memory_.size() * scale_.size());
  }

 private:
  Draws draws_;
  std::vector<std::vector<double>> memory_;
  std::vector<double> scale_, drift_;
};

TEST(ThresholdTrackerTest, MovesByTheRule) {
  ThresholdTracker tracker(.1, 2);
  tracker.Observe(.1);
  EXPECT_EQ(tracker.threshold(), 2);
  tracker.Observe(.05);
  EXPECT_NEAR(tracker.threshold(), 2 * std::exp(-.025), 1e-12);
  tracker.Observe(.7);  // six budgets too many, of which four are paid at once
  EXPECT_NEAR(tracker.threshold(), 2 * std::exp(.175), 1e-12);
  tracker.Observe(.1);
  EXPECT_NEAR(tracker.threshold(), 2 * std::exp(.275), 1e-12);
  tracker.Observe(.1);
  EXPECT_NEAR(tracker.threshold(), 2 * std::exp(.275), 1e-12);
}

TEST(ThresholdTrackerTest, KeepsTheBudgetUnderErrorFeedbackAndOneRoundOfDelay) {
  const double volumes[] = {.7, .2, .07, .03};
  const std::vector<double> relative = *RelativeThresholds(volumes);
  for (const double target : {.02, .1, .3}) {
    for (const double spread : {0.0, 1.5}) {
      for (const double start : {1.5, 30.0}) {
        Workers workers(5, 4, 500, spread);
        ThresholdTracker tracker(target, start);
        std::deque<double> known(1, target);
        double all = 0, late = 0;
        constexpr int kRounds = 600, kSettled = 200;
        for (int t = 0; t < kRounds; ++t) {
          known.push_back(workers.Round(tracker.threshold(), relative));
          all += known.back() / target / kRounds;
          if (t >= kSettled) late += known.back() / target / (kRounds - kSettled);
          tracker.Observe(known.front());
          known.pop_front();
        }
        EXPECT_NEAR(late, 1, .03) << target << " " << spread << " " << start;
        EXPECT_NEAR(all, 1, .35) << target << " " << spread << " " << start;
      }
    }
  }
}

TEST(ThresholdTrackerTest, WorkersWithMoreDataSendMore) {
  const double volumes[] = {.7, .25, .05};
  const std::vector<double> relative = *RelativeThresholds(volumes);
  std::vector<Workers> workers;
  for (uint64_t w = 0; w < 3; ++w) workers.emplace_back(w, 1, 800, 1);
  ThresholdTracker tracker(.1, 3);
  double sums[3] = {};
  for (int t = 0; t < 300; ++t) {
    double mean = 0;
    for (size_t w = 0; w < 3; ++w) {
      const double sent = workers[w].Round(tracker.threshold(), {relative[w]});
      sums[w] += sent;
      mean += sent / 3;
    }
    tracker.Observe(mean);
  }
  EXPECT_GT(sums[0], 1.5 * sums[1]);
  EXPECT_GT(sums[1], 1.5 * sums[2]);
}

// What is sent of values of whatever kind, even of some that come from an enemy: the budget is
// kept up to the moves of the threshold and what is unpaid.
TEST(ThresholdTrackerTest, MeanIsBoundedByTheRangeOfTheThreshold) {
  for (uint64_t draw = 0; draw < 100; ++draw) {
    Draws draws(9, draw);
    const double target = draws.Uniform(.2, .9);
    ThresholdTracker tracker(target, 1);
    double excess = 0;
    const int rounds = 1 + static_cast<int>(draws.Below(500));
    for (int t = 0; t < rounds; ++t) {
      // An enemy sends much when the threshold is low and little when it is high.
      const double sent =
          tracker.threshold() < 1 ? draws.Uniform(target, 1) : draws.Uniform(0, target);
      excess += sent / target - 1;
      tracker.Observe(sent);
    }
    const double moved = std::log(tracker.threshold()) / ThresholdTracker::kGain;
    EXPECT_NEAR(excess, moved + tracker.SaveState()[1], 1e-6 * rounds);
  }
}

TEST(ThresholdTrackerTest, SamePastSameThreshold) {
  Draws draws(4, 0);
  ThresholdTracker one(.1, 3);
  for (int i = 0; i < 20; ++i) one.Observe(draws.Uniform());
  ThresholdTracker other(.1, 1);
  ASSERT_TRUE(other.LoadState(one.SaveState()).ok());
  for (int i = 0; i < 20; ++i) {
    const double sent = draws.Uniform();
    one.Observe(sent);
    other.Observe(sent);
    EXPECT_EQ(one.threshold(), other.threshold());
  }
}

TEST(ThresholdTrackerTest, StaysANumberWhateverItIsGiven) {
  ThresholdTracker tracker(1e-6, 1e38);
  for (int i = 0; i < 3000; ++i) tracker.Observe(1);
  EXPECT_TRUE(std::isfinite(static_cast<float>(tracker.threshold())));
  for (const double sent : std::initializer_list<double>{NAN, -1, 2, INFINITY}) {
    const double before = tracker.threshold();
    tracker.Observe(sent);
    EXPECT_EQ(tracker.threshold(), before);
  }
  for (int i = 0; i < 3000; ++i) tracker.Observe(0);
  EXPECT_GT(static_cast<float>(tracker.threshold()), 0);
  const double bad[][2] = {{0, 0}, {NAN, 0}, {1, 9}, {1e300, 0}};
  for (const auto& state : bad) {
    EXPECT_EQ(tracker.LoadState(state).code(), StatusCode::kCorruptData);
  }
  EXPECT_EQ(tracker.LoadState({}).code(), StatusCode::kCorruptData);
}

}  // namespace
}  // namespace elastiquant::policy
