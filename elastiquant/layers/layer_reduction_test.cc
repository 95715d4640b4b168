#include "elastiquant/layers/layer_reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

const std::vector<ParameterShape> kReducedShapes{
    {"conv.weight", 3000, 4, 30, 25}, {"bn.bias", 10, 1, 1}, {"fc.weight", 5000, 2, 50}};

// A worker's layers: fc under `codec`, biases exact, and conv under top-k with error feedback.
struct LayerWorker {
  explicit LayerWorker(Communicator* communicator,
                       const std::string& codec = "elastic:bits=2|ef")
      : comm(communicator),
        plan(PlanBuckets(kReducedShapes, {.bucket_elements = 3000}).value()) {
    codecs["fc"] = MakeCodec(codec).value();
    codecs["conv"] = MakeCodec("topk:ratio=0.05|ef").value();
    codecs["exact"] = MakeCodec("fp32").value();
    for (const PlannedBucket& b : plan.buckets) gradients.emplace_back(b.elements);
    LayerBuckets buckets{plan, kReducedShapes, {}, {}};
    for (size_t b = 0; b < plan.buckets.size(); ++b) {
      const std::string& first = kReducedShapes[plan.buckets[b].slots[0].parameter].name;
      buckets.gradients.push_back(gradients[b]);
      buckets.specs.push_back(plan.buckets[b].exact    ? "exact"
                              : first == "conv.weight" ? "conv"
                                                       : "fc");
    }
    const auto choose = [world = comm->world_size()](size_t, std::shared_ptr<const Codec> c) {
      return ChooseExchange(std::move(c), nullptr, "codec", world);
    };
    const ReducerOptions options{.seed = 9, .measure_every = 1};
    layers = LayerReduction::Make(comm, std::move(buckets), codecs,
                                  {.reducer = options,
                                   .choose = choose,
                                   .conversion = Conversion::kByReduction,
                                   .has_uncompressed = true})
                 .value();
  }
  // Second moments that span six orders of magnitude, as an optimiser would have of Fill's
  // gradients if those were scaled by Scale.
  static float Scale(size_t i) { return std::ldexp(1.0f, -static_cast<int>(i % 10)); }
  void UseMetric() {
    SecondMoments spans;
    for (const ParameterShape& shape : kReducedShapes) {
      std::vector<float>& v = moments.emplace_back(shape.elements);
      for (size_t i = 0; i < v.size(); ++i) v[i] = Scale(i) * Scale(i) / 5;
    }
    for (const auto& v : moments) spans.emplace_back(v);
    ASSERT_TRUE(layers->SetMetric(std::move(spans)).ok());
  }
  void Fill(uint64_t step) {
    for (size_t b = 0; b < gradients.size(); ++b) {
      for (size_t i = 0; i < gradients[b].size(); ++i) {
        const size_t salt = step * 31 + static_cast<size_t>(comm->rank()) * 17 + b;
        gradients[b][i] = static_cast<float>((i * 7919 + salt * 104729) % 101) / 64 - 0.75f;
      }
    }
  }
  Status Step(uint64_t step, bool uncompressed = false) {
    Fill(step);
    EQ_RETURN_IF_ERROR(layers->BeginStep(step, uncompressed));
    for (size_t b = 0; b < gradients.size(); ++b) EQ_RETURN_IF_ERROR(layers->MarkReady(b));
    return layers->Finish().status();
  }
  // A step that keeps what is remembered of a parameter before it.
  Status StepThatKeeps(uint64_t step, size_t parameter) {
    Fill(step);
    EQ_RETURN_IF_ERROR(layers->BeginStep(step));
    layers->KeepMemory(parameter);
    for (size_t b = 0; b < gradients.size(); ++b) EQ_RETURN_IF_ERROR(layers->MarkReady(b));
    return layers->Finish().status();
  }
  void RestoreAll() {
    for (size_t p = 0; p < kReducedShapes.size(); ++p) layers->RestoreMemory(p);
  }
  Sections Saved() const {
    Sections sections;
    layers->SaveMemory(&sections);
    return sections;
  }

  Communicator* comm;
  BucketPlan plan;
  CodecsBySpec codecs;
  std::vector<std::vector<float>> gradients, moments;
  std::unique_ptr<LayerReduction> layers;
};

// Every worker sends under a rate of its own, and what is called back sees what was sent and
// its mean.
TEST(LayerReductionLadder, WorkersHaveCodecsOfTheirOwn) {
  std::vector<std::vector<float>> means(3);
  RunWorld(WorldOptions(3), [&](Communicator& comm) {
    const std::vector<ParameterShape> shapes{{"fc.weight", 5000, 2, 50}};
    const BucketPlan plan = PlanBuckets(shapes, {.bucket_elements = 5000}).value();
    ASSERT_EQ(plan.buckets.size(), 1u);
    std::vector<float> gradient(plan.buckets[0].elements), sent, mean;
    const CodecsBySpec codecs{{"all", MakeCodec("dither:bits=2").value()}};
    std::atomic<int> measured = 0;
    LayerReductionOptions options;
    options.reducer = {.seed = 9, .measure_every = 1};
    options.reducer.on_measured = [&](const MeasuredMessage& m) { measured += m.bucket == 0; };
    options.choose = [](size_t, std::shared_ptr<const Codec> c) {
      return ChooseExchange(std::move(c), nullptr, "all-gather", 3);
    };
    options.ladder = [&](size_t) { return std::vector{codecs.at("all")}; };
    options.before_sent = [&](size_t) { sent = gradient; };
    options.on_mean = [&](size_t) { mean = gradient; };
    auto layers =
        LayerReduction::Make(&comm, {plan, shapes, {gradient}, {"all"}}, codecs, options)
            .value();
    const std::string own = "dither:bits=" + std::to_string(1 + comm.rank());
    ASSERT_TRUE(layers->SetOwnCodec(0, MakeCodec(own).value()).ok());
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = static_cast<float>((i * 7919) % 101) / 64 - 0.75f;
    }
    const std::vector<float> before = gradient;
    ASSERT_TRUE(layers->BeginStep(0).ok());
    ASSERT_TRUE(layers->MarkReady(0).ok());
    ASSERT_TRUE(layers->Finish().ok());
    EXPECT_EQ(sent, before);
    EXPECT_EQ(mean, gradient);
    EXPECT_EQ(measured, 1);
    means[static_cast<size_t>(comm.rank())] = gradient;
  });
  EXPECT_EQ(means[1], means[0]);
  EXPECT_EQ(means[2], means[0]);
}

// What this worker's first step sends, with what goes exact made so much larger.
ReducerStats StatsOfAStep(Communicator* comm, const std::string& codec, bool in_metric,
                          float exact_scale) {
  LayerWorker worker(comm, codec);
  if (in_metric) worker.UseMetric();
  worker.Fill(0);
  EXPECT_TRUE(worker.layers->BeginStep(0).ok());
  for (size_t b = 0; b < worker.gradients.size(); ++b) {
    if (worker.plan.buckets[b].exact) {
      for (float& g : worker.gradients[b]) g *= exact_scale;
    }
    EXPECT_TRUE(worker.layers->MarkReady(b).ok());
  }
  EXPECT_TRUE(worker.layers->Finish().ok());
  return worker.layers->TakeStats();
}

// Exact buckets are in units of the gradient, and all others in those of the metric.
TEST(LayerReductionStats, ErrorsUnderAMetricAreOfWhatIsSentInIt) {
  for (const std::string codec : {"elastic:bits=2", "powersgd:rank=2|ef"}) {
    RunWorld(WorldOptions(2), [&](Communicator& comm) {
      const auto stats = [&](bool in_metric, float exact_scale) {
        return StatsOfAStep(&comm, codec, in_metric, exact_scale);
      };
      const ReducerStats plain = stats(false, 1), large = stats(false, 1e6f);
      EXPECT_GT(large.squared_norm, 1e6 * plain.squared_norm);
      const ReducerStats in_metric = stats(true, 1), beside_large = stats(true, 1e6f);
      EXPECT_GT(in_metric.squared_error, 0);
      EXPECT_NEAR(beside_large.squared_norm, in_metric.squared_norm,
                  1e-9 * in_metric.squared_norm);
      EXPECT_NEAR(beside_large.squared_error, in_metric.squared_error,
                  1e-9 * in_metric.squared_error);
    });
  }
}

class LayerReductionWorlds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, LayerReductionWorlds, testing::Values(1, 2, 3, 5, 16, 32),
                         WorldName);

TEST_P(LayerReductionWorlds, LeavesTheSameBitsOnAllAndGoesOnFromWhatItSaved) {
  const int world = GetParam();
  std::vector<std::vector<std::vector<float>>> ends(static_cast<size_t>(world));
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    Sections saved;
    {
      LayerWorker first(&comm);
      for (uint64_t step = 0; step < 2; ++step) ASSERT_TRUE(first.Step(step).ok());
      saved = first.Saved();
      ASSERT_TRUE(first.Step(2).ok());
      ends[static_cast<size_t>(comm.rank())] = first.gradients;
    }
    LayerWorker resumed(&comm);
    ASSERT_TRUE(resumed.layers->LoadMemory(saved).ok());
    ASSERT_TRUE(resumed.Step(2).ok());
    EXPECT_EQ(resumed.gradients, ends[static_cast<size_t>(comm.rank())]);
  });
  for (const auto& end : ends) EXPECT_EQ(end, ends[0]);
}

TEST_P(LayerReductionWorlds, UncompressedStepsAreExactAndLeaveTheMemoryAlone) {
  RunWorld(WorldOptions(GetParam()), [&](Communicator& comm) {
    LayerWorker worker(&comm), other(&comm);
    worker.UseMetric();
    other.UseMetric();
    ASSERT_TRUE(worker.Step(0).ok());
    ASSERT_TRUE(other.Step(0).ok());
    const Sections before = worker.Saved();
    ASSERT_TRUE(worker.Step(1, /*uncompressed=*/true).ok());
    EXPECT_EQ(worker.Saved(), before);
    for (size_t b = 0; b < worker.gradients.size(); ++b) {
      for (size_t i = 0; i < worker.gradients[b].size(); ++i) {
        double mean = 0;
        for (int rank = 0; rank < comm.world_size(); ++rank) {
          const size_t salt = 31 + static_cast<size_t>(rank) * 17 + b;
          mean += static_cast<double>((i * 7919 + salt * 104729) % 101) / 64 - .75;
        }
        ASSERT_NEAR(worker.gradients[b][i], mean / comm.world_size(), 1e-6);
      }
    }
    // As if there had been no such step.
    ASSERT_TRUE(worker.Step(2).ok());
    ASSERT_TRUE(other.Step(2).ok());
    EXPECT_EQ(worker.gradients, other.gradients);
    EXPECT_EQ(worker.Saved(), other.Saved());
  });
}

// Under elastic:bits=8 the error of each value is a small part of its own unit, however small
// that is beside the others'.
TEST_P(LayerReductionWorlds, KeepsSmallGradientsInTheMetricOfTheOptimiser) {
  const int world = GetParam();
  std::vector<std::vector<std::vector<float>>> ends(static_cast<size_t>(world));
  std::vector<std::vector<double>> sums;
  std::mutex mutex;
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    LayerWorker worker(&comm, "elastic:bits=8");
    worker.UseMetric();
    worker.Fill(0);
    {
      const std::lock_guard lock(mutex);
      for (size_t b = 0; b < worker.gradients.size(); ++b) {
        if (sums.size() <= b) sums.emplace_back(worker.gradients[b].size());
        for (size_t i = 0; i < worker.gradients[b].size(); ++i) {
          worker.gradients[b][i] *= LayerWorker::Scale(i);
          sums[b][i] += static_cast<double>(worker.gradients[b][i]);
        }
      }
    }
    ASSERT_TRUE(worker.layers->BeginStep(0).ok());
    for (size_t b = 0; b < worker.gradients.size(); ++b) {
      ASSERT_TRUE(worker.layers->MarkReady(b).ok());
    }
    ASSERT_TRUE(worker.layers->Finish().ok());
    ends[static_cast<size_t>(comm.rank())] = worker.gradients;
    for (const auto& line : worker.layers->certificate().Lines(1, 1)) {
      EXPECT_NE(line.at("verdict").get<std::string>(), "exceeded") << line;
    }
  });
  for (const auto& end : ends) EXPECT_EQ(end, ends[0]);
  for (size_t b = 0; b < ends[0].size(); ++b) {
    if (ends[0][b].size() == 3000) continue;  // conv, of which top-k sends little
    for (size_t i = 0; i < ends[0][b].size(); ++i) {
      EXPECT_NEAR(static_cast<double>(ends[0][b][i]), sums[b][i] / world,
                  0.03 * static_cast<double>(LayerWorker::Scale(i)))
          << "bucket " << b << " at " << i;
    }
  }
}

TEST(LayerReductionTest, WorkersWithOtherMomentsAreToldApart) {
  for (const bool has_none : {false, true}) {
    std::vector<Status> ends(3);
    RunWorld(WorldOptions(3), [&](Communicator& comm) {
      LayerWorker worker(&comm, "dither:bits=2");
      if (comm.rank() != 1 || !has_none) worker.UseMetric();
      if (comm.rank() == 1 && !has_none) worker.moments[2][4000] *= 1.001f;
      ends[static_cast<size_t>(comm.rank())] = worker.Step(0);
    });
    bool told = false;
    for (const Status& end : ends) {
      EXPECT_FALSE(end.ok());
      told |= end.message().find("it is in another metric") != std::string::npos;
    }
    EXPECT_TRUE(told) << ends[0].ToString();
  }
}

TEST(LayerReductionTest, AStepThatIsNotAppliedLeavesTheMemoryThatItIsToldToKeep) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    LayerWorker worker(&comm);
    ASSERT_TRUE(worker.Step(0).ok());
    const Sections before = worker.Saved();
    ASSERT_TRUE(worker.StepThatKeeps(1, 2).ok());
    worker.RestoreAll();
    const Sections after = worker.Saved();
    EXPECT_EQ(after.at("memory/residual/fc.weight"), before.at("memory/residual/fc.weight"));
    EXPECT_NE(after.at("memory/residual/conv.weight"),
              before.at("memory/residual/conv.weight"));

    // What is loaded is not overwritten by what was kept before.
    ASSERT_TRUE(worker.layers->LoadMemory(after).ok());
    const Sections loaded = worker.Saved();
    worker.RestoreAll();
    EXPECT_EQ(worker.Saved(), loaded);
    ASSERT_TRUE(worker.StepThatKeeps(2, 2).ok());
    ASSERT_TRUE(worker.layers->LoadMemory(before).ok());
    worker.RestoreAll();
    EXPECT_EQ(worker.Saved(), before);
  });
}

// What the steps so far have sent of a coordinate, and the exact one sends, are all gradients.
class ExactSteps : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(InAMetric, ExactSteps, testing::Bool());

TEST_P(ExactSteps, SendAllThatWasHeldBack) {
  constexpr int kWorld = 2;
  RunWorld(WorldOptions(kWorld), [](Communicator& comm) {
    LayerWorker worker(&comm);
    if (GetParam()) worker.UseMetric();
    std::vector<std::vector<double>> owed;  // this worker's gradients less the means so far
    for (const auto& g : worker.gradients) owed.emplace_back(g.size());
    const auto add = [&](double weight) {
      for (size_t b = 0; b < owed.size(); ++b) {
        for (size_t i = 0; i < owed[b].size(); ++i) {
          owed[b][i] += weight * static_cast<double>(worker.gradients[b][i]);
        }
      }
    };
    for (uint64_t step = 0; step < 3; ++step) {
      worker.Fill(step);
      add(1);
      ASSERT_TRUE(worker.Step(step).ok());
      add(-1);
    }
    worker.Fill(3);
    add(1);
    worker.layers->BeginExactStep();
    EXPECT_TRUE(worker.layers->flushes());
    for (size_t b = 0; b < worker.gradients.size(); ++b) worker.layers->Flush(b);
    // The sum of what the workers send is what all of them together are owed.
    for (size_t b = 0; b < worker.gradients.size(); ++b) {
      for (size_t i = 0; i < worker.gradients[b].size(); ++i) {
        const auto bits = [](double v) { return std::bit_cast<uint64_t>(v); };
        const auto all = [&](double v) {
          const std::vector<uint64_t> theirs = comm.AllGather(bits(v)).value();
          double sum = 0;
          for (const uint64_t t : theirs) sum += std::bit_cast<double>(t);
          return sum;
        };
        if (i % 97 != 0) continue;  // each of these asks all workers
        const double sent = all(static_cast<double>(worker.gradients[b][i]));
        ASSERT_NEAR(sent, all(owed[b][i]), 1e-4) << "bucket " << b << " at " << i;
      }
    }
    worker.layers->CommitFlushed();
    worker.layers->BeginExactStep();
    EXPECT_FALSE(worker.layers->flushes()) << "all has been sent";
  });
}

TEST(LayerReductionTest, TravelsUnderOtherCodecsFromAStepOn) {
  RunWorld(WorldOptions(3), [](Communicator& comm) {
    LayerWorker worker(&comm, "elastic:bits=2");
    ASSERT_TRUE(worker.Step(0).ok());
    const uint64_t before = comm.traffic().bytes_up;
    ASSERT_TRUE(worker.Step(1).ok());
    const uint64_t coarse = comm.traffic().bytes_up - before;
    worker.codecs["fc"] = MakeCodec("elastic:bits=8").value();
    ASSERT_TRUE(worker.layers->UseCodecs(worker.codecs).ok());
    const uint64_t at_change = comm.traffic().bytes_up;
    ASSERT_TRUE(worker.Step(2).ok());
    EXPECT_GT(comm.traffic().bytes_up - at_change, coarse + 3000);
    worker.codecs["fc"] = MakeCodec("topk").value();
    EXPECT_EQ(worker.layers->UseCodecs(worker.codecs).code(), StatusCode::kInvalidArgument);
  });
}

TEST(LayerReductionTest, CertifiesLossyLayersOnly) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    LayerWorker worker(&comm, "elastic:bits=4");
    ASSERT_TRUE(worker.Step(0).ok());
    std::vector<std::string> layers;
    for (const auto& line : worker.layers->certificate().Lines(1, 1)) {
      layers.push_back(line.at("layer").get<std::string>());
    }
    EXPECT_EQ(std::ranges::count(layers, "fc.weight"), 1);
    EXPECT_EQ(std::ranges::count(layers, "conv.weight"), 1);
    EXPECT_EQ(std::ranges::count(layers, "bn.bias"), 0);
  });
}

TEST_P(LayerReductionWorlds, ADeathEndsTheOthersWithItsName) {
  const int world = GetParam();
  MemoryNetwork network({.most_delay = std::chrono::microseconds(300)});
  const int victim = world - 1;
  std::atomic<int> named{0};
  const auto work = [&](Communicator& comm) {
    LayerWorker worker(&comm);
    Status status;
    for (uint64_t step = 0; status.ok() && step < 4; ++step) {
      if (step == 2 && comm.rank() == victim) network.Kill(victim);
      status = worker.Step(step);
    }
    named += status.message().find("worker " + std::to_string(victim)) != std::string::npos;
  };
  // Long enough for a busy machine under a sanitizer: a death is heard of at once.
  RunWorld(HostedWorldOptions(world, std::chrono::seconds(20)), work, &network);
  EXPECT_GE(named, world - 1);
}

}  // namespace
}  // namespace elastiquant
