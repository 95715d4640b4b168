#include "elastiquant/protocol/lazy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/schedules_testing.h"

namespace elastiquant {
namespace {

using Vector = std::vector<float>;
using Bytes = std::vector<uint8_t>;

Lazy MakeLazy(const LazyOptions& options) { return Lazy::Make(options).value(); }

// A step of a worker that is alone.
LazyApply StepAlone(Lazy* lazy, const LazyStep& step) {
  const auto bytes = lazy->OnGradient(step);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
  auto apply = lazy->OnMessage(0, *bytes);
  EXPECT_TRUE(apply.ok()) << apply.status().ToString();
  return apply->value();
}

TEST(LazyTest, SendsWhatThePublishedQuantiserSends) {
  Lazy lazy = MakeLazy({.rule = LazyRule::kLaq, .elements = 3, .codec = "laq:bits=3,bucket=0"});
  const Vector gradient = {.3f, -.5f, 1};
  // On the grid -1 + 2k / 7 these are the codes 5, 2 and 7.
  const LazyApply first = StepAlone(&lazy, {.gradient = gradient});
  EXPECT_THAT(first.mean,
              testing::Pointwise(testing::FloatNear(1e-6f), {3.0f / 7, -3.0f / 7, 1.0f}));
  EXPECT_EQ(lazy.uploads(), 1u);
  // The innovation is (-.128571, -.0714286, 0), R = .128571: codes 0, 2 and 4 (or 3 for zero).
  // |Q' - Q|^2 = .0165 + .0030 + .0003 is below 3 (e'^2 + e^2) = 3 * .0216: it is silent.
  const LazyApply second = StepAlone(&lazy, {.gradient = gradient});
  EXPECT_EQ(lazy.uploads(), 1u);
  EXPECT_FLOAT_EQ(second.mean[0], 3.0f / 7);
}

TEST(LazyTest, LagWkComparesWithTheLastMoves) {
  Lazy lazy = MakeLazy({.elements = 1, .history = 2, .weight = .5});
  const auto uploads = [&](float g) {
    const uint64_t before = lazy.uploads();
    const Vector gradient = {g};
    StepAlone(&lazy, {.gradient = gradient});
    return lazy.uploads() > before;
  };
  EXPECT_TRUE(uploads(1));  // the first always
  lazy.OnMoved(.04, .1);    // |difference / rate|^2 = 4: T = 2
  EXPECT_FALSE(uploads(2.4f));
  EXPECT_TRUE(uploads(2.5f));  // 1.5^2 > 2
  lazy.OnMoved(.01, .1);       // T = .5 (1 + 4)
  EXPECT_FALSE(uploads(4));
  lazy.OnMoved(0, .1);  // the 4 is forgotten: T = .5
  EXPECT_TRUE(uploads(3.3f));
}

TEST(LazyTest, NobodyIsSilentForLongerThanAllowed) {
  Lazy lazy = MakeLazy({.elements = 2, .most_silent = 3});
  const Vector gradient = {1, 2};
  std::string sent;
  for (int k = 0; k < 9; ++k) {
    const uint64_t before = lazy.uploads();
    StepAlone(&lazy, {.gradient = gradient});
    sent += lazy.uploads() > before ? 'u' : '.';
  }
  EXPECT_EQ(sent, "u...u...u");
}

TEST(LazyTest, LagPsLearnsHowSmoothTheLossIs) {
  Lazy lazy = MakeLazy({.rule = LazyRule::kLagPs, .elements = 1, .history = 1, .weight = 1});
  const auto uploads = [&](float w) {
    const uint64_t before = lazy.uploads();
    const Vector weights = {w}, gradient = {3 * w};  // L = 3
    StepAlone(&lazy, {.gradient = gradient, .weights = weights});
    return lazy.uploads() > before;
  };
  EXPECT_TRUE(uploads(1));
  lazy.OnMoved(100, 1);
  EXPECT_TRUE(uploads(.5f));  // L is not known yet
  EXPECT_FALSE(uploads(.4f));
  lazy.OnMoved(.09, 1);  // T = .09, reached at a distance of .1
  EXPECT_FALSE(uploads(.41f));
  EXPECT_TRUE(uploads(.39f));
}

TEST(LazyTest, LasgComparesGradientsOfTheSameSamples) {
  Lazy lazy = MakeLazy({.rule = LazyRule::kLasg, .elements = 1, .history = 1, .weight = 1});
  const Vector weights = {7};
  EXPECT_FALSE(lazy.wants_reference());
  const Vector first = {1};
  StepAlone(&lazy, {.gradient = first, .weights = weights});
  ASSERT_TRUE(lazy.wants_reference());
  EXPECT_EQ(lazy.last_weights()[0], 7);
  lazy.OnMoved(1, 1);
  // Far from what was sent, but that is noise: at the old weights these samples gave the same.
  const Vector noisy = {50}, same = {49.5f}, other = {45};
  EXPECT_EQ(StepAlone(&lazy, {noisy, weights, same}).mean[0], 1);
  EXPECT_EQ(lazy.uploads(), 1u);
  EXPECT_EQ(StepAlone(&lazy, {noisy, weights, other}).mean[0], 50);
  EXPECT_EQ(lazy.uploads(), 2u);
  EXPECT_FALSE(lazy.OnGradient({noisy, weights, {}}).ok());  // needs the reference
}

TEST(LazyTest, OptionsOutOfRangeAreErrors) {
  for (const LazyOptions& bad :
       {LazyOptions{}, LazyOptions{.rank = 1, .elements = 1},
        LazyOptions{.elements = 1, .history = 0}, LazyOptions{.elements = 1, .weight = -1},
        LazyOptions{.elements = 1, .codec = "topk|ef"}}) {
    EXPECT_EQ(Lazy::Make(bad).status().code(), StatusCode::kInvalidArgument);
  }
}

// The workers of one run, and the messages under way between them.
class World {
 public:
  World(LazyOptions options, int workers) : options_(std::move(options)) {
    options_.world_size = workers;
    for (int w = 0; w < workers; ++w) {
      options_.rank = w;
      workers_.push_back(MakeLazy(options_));
    }
    applied_.resize(workers_.size());
  }

  Lazy& worker(size_t w) { return workers_[w]; }
  size_t size() const { return workers_.size(); }
  const std::vector<Vector>& means(size_t w) const { return applied_[w]; }
  size_t bytes() const { return bytes_; }
  size_t uploads() const {
    return std::accumulate(workers_.begin(), workers_.end(), size_t{0},
                           [](size_t sum, const Lazy& l) { return sum + l.uploads(); });
  }

  void Send(size_t from, const LazyStep& step) {
    const auto bytes = workers_[from].OnGradient(step);
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    bytes_ += bytes->size();
    for (size_t to = 0; to < workers_.size(); ++to) {
      under_way_.push_back({from, to, {bytes->begin(), bytes->end()}});
    }
  }
  bool is_quiet() const { return under_way_.empty(); }
  // Delivers one of the messages under way.
  void Deliver(uint64_t random) {
    const auto which = under_way_.begin() + static_cast<ptrdiff_t>(random % under_way_.size());
    const Message m = std::move(*which);
    under_way_.erase(which);
    auto apply = workers_[m.to].OnMessage(static_cast<int>(m.from), m.bytes);
    ASSERT_TRUE(apply.ok()) << apply.status().ToString();
    if (*apply) applied_[m.to].emplace_back((*apply)->mean.begin(), (*apply)->mean.end());
  }
  // Replaces a worker by another that has loaded its state.
  void Resume(size_t w) {
    options_.rank = static_cast<int>(w);
    const Bytes state = workers_[w].Save();
    workers_[w] = MakeLazy(options_);
    const Status status = workers_[w].Load(state);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(workers_[w].Save(), state);
  }

 private:
  struct Message {
    size_t from, to;
    Bytes bytes;
  };
  LazyOptions options_;
  std::vector<Lazy> workers_;
  std::vector<std::vector<Vector>> applied_;  // by worker and step
  std::deque<Message> under_way_;
  size_t bytes_ = 0;
};

// Logistic regression with a ridge, on samples of the worker's own. As published, workers
// differ in how smooth their losses are: the features of worker m are scaled by 1 + m / 3.
class Logistic {
 public:
  static constexpr size_t kDimensions = 10, kSamples = 20;
  explicit Logistic(size_t worker) {
    const LaneKeys keys = MakeLaneKeys(DeriveKey(1, worker, 0, 0));
    uint32_t next = 0;
    const auto uniform = [&] { return 2 * UniformFloat(RandomBits(keys, next++)) - 1; };
    for (size_t s = 0; s < kSamples; ++s) {
      for (size_t i = 0; i < kDimensions; ++i) {
        x_.push_back(uniform() * (1 + static_cast<float>(worker) / 3));
      }
      y_.push_back(uniform() + x_[s * kDimensions] > 0 ? 1.0f : -1.0f);
    }
  }
  double Loss(const Vector& w, Vector* gradient) const {
    constexpr double kRidge = .1;
    std::vector<double> g(kDimensions);
    double loss = 0;
    for (size_t i = 0; i < kDimensions; ++i) {
      loss += kRidge / 2 * w[i] * w[i];
      g[i] = kRidge * w[i];
    }
    for (size_t s = 0; s < kSamples; ++s) {
      const float* x = x_.data() + s * kDimensions;
      double margin = 0;
      for (size_t i = 0; i < kDimensions; ++i) margin += y_[s] * x[i] * w[i];
      loss += std::log1p(std::exp(-margin)) / kSamples;
      const double slope = -y_[s] / (1 + std::exp(margin)) / kSamples;
      for (size_t i = 0; i < kDimensions; ++i) g[i] += slope * x[i];
    }
    gradient->assign(g.begin(), g.end());
    return loss;
  }

 private:
  Vector x_, y_;
};

struct Trained {
  double loss = 0;
  size_t uploads = 0, bytes = 0;
};

// Descends for `steps`, nine workers, at the rate of all.
Trained TrainLogistic(const LazyOptions& options, int steps) {
  constexpr double kRate = .3;
  World world(options, 9);
  std::vector<Logistic> losses;
  for (size_t m = 0; m < world.size(); ++m) losses.emplace_back(m);
  Vector w(Logistic::kDimensions), gradient, reference;
  for (int k = 0; k < steps; ++k) {
    for (size_t m = 0; m < world.size(); ++m) {
      losses[m].Loss(w, &gradient);
      const std::span<const float> last = world.worker(m).last_weights();
      if (!last.empty()) losses[m].Loss({last.begin(), last.end()}, &reference);
      world.Send(m, {.gradient = gradient, .weights = w, .reference = reference});
    }
    while (!world.is_quiet()) world.Deliver(0);
    double squares = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const float move = static_cast<float>(kRate) * world.means(0).back()[i];
      squares += static_cast<double>(move) * move;
      w[i] -= move;
    }
    for (size_t m = 0; m < world.size(); ++m) world.worker(m).OnMoved(squares, kRate);
  }
  Trained trained{0, world.uploads(), world.bytes()};
  for (const Logistic& loss : losses) {
    trained.loss += loss.Loss(w, &gradient) / static_cast<double>(losses.size());
  }
  return trained;
}

TEST(LazyTest, LogisticRegressionComesAsFarWithFewerUploads) {
  constexpr int kSteps = 300;
  const LazyOptions base{.elements = Logistic::kDimensions};
  const auto with = [&](LazyRule rule, double weight, const char* codec) {
    LazyOptions options = base;
    options.rule = rule;
    options.weight = weight;
    options.codec = codec;
    return options;
  };
  LazyOptions every = base;
  every.most_silent = 0;
  const Trained descent = TrainLogistic(every, kSteps);
  EXPECT_EQ(descent.uploads, size_t{kSteps * 9});
  const double best = TrainLogistic(every, 3000).loss;
  EXPECT_LT(descent.loss - best, 1e-5);
  for (const LazyOptions& options :
       {with(LazyRule::kLagWk, .1, "fp32"), with(LazyRule::kLagPs, 1, "fp32"),
        with(LazyRule::kLasg, .1, "fp32"), with(LazyRule::kLaq, .08, "laq:bits=4,bucket=0")}) {
    SCOPED_TRACE(static_cast<int>(options.rule));
    const Trained lazy = TrainLogistic(options, kSteps);
    RecordProperty("uploads_of_rule_" + std::to_string(static_cast<int>(options.rule)),
                   static_cast<int>(lazy.uploads));
    EXPECT_LT(lazy.uploads, descent.uploads / 2);
    EXPECT_LT(lazy.bytes, descent.bytes);
    EXPECT_LT(lazy.loss - best, 1e-4);
  }
}

// One random schedule. Messages are delivered in any order; workers go on as soon as they may,
// so that some are a step ahead; some are replaced in between by one that loads their state.
void RunSchedule(uint64_t seed) {
  constexpr LazyRule kRules[] = {LazyRule::kLagWk, LazyRule::kLagPs, LazyRule::kLaq,
                                 LazyRule::kLasg};
  constexpr const char* kCodecs[] = {"fp32", "laq:bits=4", "dither:bits=2", "topk:k=2"};
  uint64_t draws = 0;
  const auto draw = [&](uint64_t below) { return Mix64(Mix64(seed) + draws++) % below; };
  LazyOptions options{.rule = kRules[draw(4)], .elements = 1 + draw(6)};
  options.codec = kCodecs[draw(4)];
  options.seed = seed;
  options.most_silent = static_cast<int64_t>(draw(5));
  const size_t workers = 1 + draw(5), steps = 1 + draw(8);
  World world(options, static_cast<int>(workers));
  std::vector<size_t> begun(workers);
  const auto sample = [&] {
    Vector values(options.elements);
    for (float& v : values) v = static_cast<float>(draw(1000)) / 500 - 1;
    return values;
  };
  std::vector<double> expected(options.elements);
  while (true) {
    std::vector<size_t> may;
    for (size_t w = 0; w < workers; ++w) {
      if (begun[w] < steps && world.means(w).size() == begun[w]) may.push_back(w);
    }
    if (may.empty() && world.is_quiet()) break;
    if (!may.empty() && (world.is_quiet() || draw(2) == 0)) {
      const size_t w = may[draw(may.size())];
      if (draw(4) == 0) world.Resume(w);
      if (begun[w] > 0) world.worker(w).OnMoved(static_cast<double>(draw(100)) / 100, 1);
      const Vector gradient = sample(), weights = sample(), reference = sample();
      const bool breaks = draw(20) == 0;
      const float loss = breaks ? NAN : 0.0f;  // then all must skip the step
      world.Send(w, {gradient, weights, reference, loss});
      ++begun[w];
    } else {
      world.Deliver(draw(1 << 20));
    }
    if (testing::Test::HasFailure()) return;
  }
  for (size_t w = 0; w < workers; ++w) {
    ASSERT_EQ(world.means(w), world.means(0));  // bit by bit, in every step
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += world.worker(w).sent()[i];
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(world.worker(0).sum()[i], expected[i], 1e-12 * (1 + std::abs(expected[i])));
    const double mean = expected[i] / static_cast<double>(workers);
    ASSERT_NEAR(world.means(0).back()[i], mean, 1e-7 * (1e-3 + std::abs(mean)));
  }
}

// EQ_LAZY_SEED=17 in the environment runs that schedule alone.
TEST(LazyTest, AllSchedulesGiveTheMeanOfWhatWasSentLast) {
  ForEachSchedule("EQ_LAZY_SEED", 1000, RunSchedule);
}

TEST(LazyTest, ASkippedStepChangesNothing) {
  World world({.elements = 1}, 2);
  const Vector one = {1}, three = {3}, bad = {NAN};
  world.Send(0, {.gradient = one});
  world.Send(1, {.gradient = three});
  while (!world.is_quiet()) world.Deliver(0);
  const Vector nine = {9};
  world.Send(0, {.gradient = nine});
  world.Send(1, {.gradient = bad});
  while (!world.is_quiet()) world.Deliver(0);
  EXPECT_EQ(world.means(0).back(), (Vector{2}));
  EXPECT_EQ(world.worker(0).sent()[0], 1);
  EXPECT_EQ(world.uploads(), 2u);
  EXPECT_EQ(world.worker(0).step(), 2u);
}

TEST(LazyTest, HostileBytesAreErrorsAndChangeNothing) {
  Lazy sender = MakeLazy({.rank = 1, .world_size = 2, .elements = 5, .codec = "laq:bits=4"});
  Lazy receiver = MakeLazy({.rank = 0, .world_size = 2, .elements = 5, .codec = "laq:bits=4"});
  const Vector gradient = {1, 2, 3, 4, 5};
  const auto sent = sender.OnGradient({.gradient = gradient}).value();
  const Bytes good(sent.begin(), sent.end());
  const Bytes before = receiver.Save();
  const auto refused = [&](int from, std::span<const uint8_t> bytes) {
    const auto result = receiver.OnMessage(from, bytes);
    return !result.ok() && result.status().code() == StatusCode::kCorruptData &&
           receiver.Save() == before;
  };
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(refused(1, std::span(good).first(size))) << size;
  }
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes changed = good;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_TRUE(refused(1, changed)) << bit;
  }
  Bytes longer = good;
  longer.push_back(0);
  EXPECT_TRUE(refused(1, longer));
  EXPECT_TRUE(refused(0, good));  // its own, which it has not sent
  EXPECT_TRUE(refused(2, good));  // of nobody
  EXPECT_TRUE(refused(-1, good));
  ASSERT_TRUE(receiver.OnMessage(1, good).ok());
  EXPECT_EQ(receiver.OnMessage(1, good).status().code(), StatusCode::kCorruptData);  // twice
}

TEST(LazyTest, StatesAreCheckedBeforeTheyAreTaken) {
  const LazyOptions options{.rule = LazyRule::kLasg, .elements = 2};
  Lazy lazy = MakeLazy(options);
  const Vector gradient = {1, 2};
  StepAlone(&lazy, {gradient, gradient, {}});
  const Bytes good = lazy.Save();
  for (size_t byte = 0; byte < good.size(); ++byte) {
    Bytes changed = good;
    changed[byte] ^= 1;
    EXPECT_EQ(lazy.Load(changed).code(), StatusCode::kCorruptData);
    EXPECT_EQ(lazy.Load(std::span(good).first(byte)).code(), StatusCode::kCorruptData);
  }
  LazyOptions other = options;
  other.elements = 3;
  EXPECT_EQ(MakeLazy(other).Load(good).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(lazy.Save(), good);
}

}  // namespace
}  // namespace elastiquant
