#include "elastiquant/ddp/ddp_engine.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/ddp/engine_testing.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

// What all ranks came to must be the same bits.
class Replicas {
 public:
  void Compare(const std::vector<at::Tensor>& means) {
    const std::lock_guard lock(mutex_);
    std::vector<at::Tensor> copy;
    for (const at::Tensor& t : means) copy.push_back(t.clone());
    if (first_.empty()) first_ = copy;
    ASSERT_EQ(first_.size(), copy.size());
    for (size_t i = 0; i < copy.size(); ++i) EXPECT_TRUE(at::equal(first_[i], copy[i]));
  }

 private:
  std::mutex mutex_;
  std::vector<at::Tensor> first_;
};

TEST(DdpEngine, AveragesExactlyInFp32ThroughARebuild) {
  for (const int world : {1, 2, 3}) {
    const auto options = WorldOptions(world);
    RunRanks(world, [&](int rank) {
      Worker worker(options, rank, "fp32");
      for (int step = 0; step < 5; ++step) {
        const Layout& layout = step == 0 ? kFirst : kRebuilt;
        const auto means = worker.Step(step, layout);
        EXPECT_LT(worker.Error(means, layout, step), 1e-6)
            << world << " workers, step " << step;
      }
      EXPECT_EQ(worker.engine->stats().steps, 5u);
    });
  }
}

TEST(DdpEngine, ReplicasAreTheSameBitsAndNearTheMean) {
  // With the greatest error of a coordinate that is still plausible: gradients are within 1.
  const std::pair<const char*, double> codecs[] = {
      {"elastic:bits=8", .2}, {"dither:bits=6", .2},        {"qsgd:bits=8,bucket=64", .2},
      {"alq:bits=8", 2},      {"powersgd:rank=4|ef", 1.01}, {"topk:ratio=0.9", .2}};
  for (const auto& entry : codecs) {
    const char* const codec = entry.first;  // clang's lambdas capture no structured bindings
    const double worst = entry.second;
    const auto options = WorldOptions(3);
    std::vector<Replicas> replicas(4);
    RunRanks(3, [&](int rank) {
      Worker worker(options, rank, codec);
      for (int step = 0; step < 4; ++step) {
        const Layout& layout = step == 0 ? kFirst : kRebuilt;
        const auto means = worker.Step(step, layout);
        replicas[static_cast<size_t>(step)].Compare(means);
        EXPECT_LT(worker.Error(means, layout, step), worst) << codec;
      }
      const DdpStats stats = worker.engine->stats();
      EXPECT_GT(stats.traffic.bytes_up, 0u);
      EXPECT_GT(stats.fp32_bytes_up, stats.traffic.bytes_up * 9 / 10) << codec;
    });
  }
}

// DDP frees its buckets when it rebuilds them, which must not wait for the engine's next step.
TEST(DdpEngine, LetsGoOfTensorsWhenAStepIsOver) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=4");
    for (int step = 0; step < 4; ++step) {
      const std::vector<at::Tensor> means = worker.Step(step, step < 1 ? kFirst : kRebuilt);
      for (const at::Tensor& mean : means) {
        // The thread that completed the future may not have returned yet.
        for (int tries = 0; mean.use_count() > 1 && tries < 5000; ++tries) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(mean.use_count(), 1u) << "step " << step;
      }
    }
  });
}

TEST(DdpEngine, TakesHalfPrecision) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const auto options = WorldOptions(2);
    RunRanks(2, [&](int rank) {
      Worker worker(options, rank, "elastic:bits=8");
      for (int step = 0; step < 3; ++step) {
        const auto means = worker.Step(step, kRebuilt, type);
        EXPECT_EQ(means[0].scalar_type(), type);
        EXPECT_LT(worker.Error(means, kRebuilt, step), .1);
      }
    });
  }
}

TEST(DdpEngine, RefusesDoubles) {
  Worker worker(WorldOptions(1), 0, "fp32");
  EXPECT_THROW(worker.Step(0, kFirst, at::kDouble), c10::Error);
  EXPECT_THROW(worker.Step(1, kFirst), c10::Error) << "and does not go on as if nothing was";
}

TEST(DdpEngine, ANanOnOneWorkerIsNanOnAllAndIsForgotten) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=8|ef");
    for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
    const auto poisoned = worker.Step(3, kRebuilt, at::kFloat, rank == 1);
    EXPECT_TRUE(at::isnan(poisoned[0]).any().item<bool>());
    EXPECT_EQ(worker.engine->stats().skipped, 1u);
    EXPECT_NE(worker.engine->stats().skip_reason.find("worker 1"), std::string::npos);
    const auto means = worker.Step(4, kRebuilt);
    EXPECT_LT(worker.Error(means, kRebuilt, 4), .1);
  });
}

TEST(DdpEngine, CertifiesItsLayers) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=4,levels=exp");
    for (int step = 0; step < 12; ++step) (void)worker.Step(step, kRebuilt);
    const auto lines = worker.engine->Layers();
    ASSERT_EQ(lines.size(), 3u) << "two layers, and all";
    for (const auto& line : lines) {
      EXPECT_GT(line["nmse"], 0);
      EXPECT_EQ(line["verdict"], "holds");
    }
    worker.engine->ResetStats();
    EXPECT_EQ(worker.engine->stats().steps, 0u);
    EXPECT_TRUE(worker.engine->Layers().empty());

    (void)worker.Step(12, kRebuilt);
    const auto latest = worker.engine->Layers();
    worker.engine->Close();
    EXPECT_EQ(latest.size(), 3u);
    EXPECT_EQ(worker.engine->Layers(), latest);
    worker.engine->ResetStats();
    EXPECT_TRUE(worker.engine->Layers().empty());
  });
}

TEST(DdpEngine, MemoryFollowsTheUnitsOfTheGradient) {
  for (const std::string codec : {"qsgdv:bits=3|ef", "dgc:ratio=0.1", "powersgd:rank=1|ef"}) {
    const auto options = WorldOptions(2), scaled_options = WorldOptions(2);
    RunRanks(2, [&](int rank) {
      Worker plain(options, rank, codec), scaled(scaled_options, rank, codec);
      for (int step = 0; step < 8; ++step) {
        scaled.scale = step < 3 ? 4 : step < 6 ? 64 : 8;
        ASSERT_TRUE(scaled.engine->SetUnits(std::vector<double>(4, 1 / scaled.scale)).ok());
        const auto expected = plain.Step(step, kRebuilt), found = scaled.Step(step, kRebuilt);
        for (size_t d = 0; d < expected.size(); ++d) {
          EXPECT_TRUE(at::equal(found[d], scaled.scale * expected[d])) << codec << " " << step;
        }
        if (step != 4) continue;  // the state tells its units
        const Sections state = scaled.engine->SaveState();
        ASSERT_TRUE(scaled.engine->SetUnits(std::vector<double>(4, 1)).ok());
        ASSERT_TRUE(scaled.engine->LoadState(state).ok());
      }
    });
  }
  Worker worker(WorldOptions(1), 0, "topk|ef");
  EXPECT_EQ(worker.engine->SetUnits({1, 1, 1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(worker.engine->SetUnits({1, 1, 1, -1}).code(), StatusCode::kInvalidArgument);
}

TEST(DdpEngine, AWorkerThatClosesEndsTheOthers) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=4|ef");
    for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
    const Sections state = worker.engine->SaveState();
    if (rank == 1) {
      // One bucket of two, and then no more.
      (void)worker.engine->Reduce(0, false, at::zeros({5004}), kRebuilt[0]);
      worker.engine->Close();
      EXPECT_EQ(worker.engine->SaveState(), state) << "what was remembered before the step";
      EXPECT_THROW(worker.Step(4, kRebuilt), c10::Error);
    } else {
      try {
        (void)worker.Step(3, kRebuilt);
        ADD_FAILURE() << "nothing was raised";
      } catch (const c10::Error& e) {
        EXPECT_NE(std::string(e.what()).find("worker 1"), std::string::npos) << e.what();
      }
    }
  });
}

TEST(DdpEngine, OffersAreSentEarlyAndChangeNoBit) {
  const std::pair<const char*, at::ScalarType> cases[] = {{"elastic:bits=4|ef", at::kFloat},
                                                          {"elastic:bits=4|ef", at::kBFloat16},
                                                          {"alq:bits=4", at::kFloat},
                                                          {"powersgd:rank=2|ef", at::kHalf},
                                                          {"fp32", at::kFloat}};
  for (const auto& [codec, type] : cases) {
    const auto options = WorldOptions(3), options_late = WorldOptions(3);
    RunRanks(3, [&, codec = codec, type = type](int rank) {
      const DdpOptions ddp{.bucket_elements = 4000};
      Worker early(options, rank, codec, ddp), late(options_late, rank, codec, ddp);
      // Every worker others, and one none.
      early.offers = [&](size_t p) { return rank == 0 || (rank == 1 && p >= 2); };
      for (int step = 0; step < 6; ++step) {
        const Layout& layout = step == 0 ? kFirst : kRebuilt;
        const auto means = early.Step(step, layout, type);
        const auto expected = late.Step(step, layout, type);
        for (size_t d = 0; d < means.size(); ++d) {
          EXPECT_TRUE(at::equal(means[d], expected[d])) << codec << ", step " << step;
        }
      }
      EXPECT_EQ(early.engine->stats().early > 0, rank < 2) << codec;
      EXPECT_EQ(late.engine->stats().early, 0u);
      EXPECT_EQ(early.engine->SaveState(), late.engine->SaveState());
    });
  }
}

TEST(DdpEngine, WaitsUntilDdpHasSettledItsBuckets) {
  // As in a static graph, which DDP looks at for two steps; the first bucket stays as it was.
  const Layout rebuilt = {{3, 2}, {0, 1}};
  Worker worker(WorldOptions(1), 0, "fp32");
  worker.offers = [](size_t) { return true; };
  for (int step = 0; step < 6; ++step) {
    const Layout& layout = step < 2 ? kRebuilt : rebuilt;
    worker.engine->SetMayRebuild(step < 2);
    EXPECT_LT(worker.Error(worker.Step(step, layout), layout, step), 1e-6) << step;
    EXPECT_EQ(worker.engine->stats().early > 0, step > 3) << step;
  }
}

TEST(DdpEngine, WhatIsNotAsInDdpsBucketIsLeftToIt) {
  Worker worker(WorldOptions(1), 0, "fp32");
  for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
  worker.engine->Offer(2, at::zeros({3, 1667}, at::kDouble));
  worker.engine->Offer(3, at::zeros({4}));
  worker.engine->Offer(0, at::zeros({1, 30}).expand({100, 30}));
  worker.engine->Offer(1, at::zeros({60}).as_strided({30}, {2}));
  const auto means = worker.Step(3, kRebuilt);
  EXPECT_LT(worker.Error(means, kRebuilt, 3), 1e-6);
  EXPECT_EQ(worker.engine->stats().early, 0u);
}

TEST(DdpEngine, ABackwardThatWasBrokenOffIsNotMixedWithTheNext) {
  Worker worker(WorldOptions(1), 0, "fp32");
  for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
  worker.engine->Offer(3, at::zeros({3}));
  worker.engine->Offer(3, at::zeros({3}));
  EXPECT_THROW(worker.Step(3, kRebuilt), c10::Error);
}

TEST(DdpEngine, AnOfferAfterDdpsBucketIsTooLate) {
  Worker worker(WorldOptions(1), 0, "fp32");
  for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
  auto first = worker.engine->Reduce(0, false, at::ones({5004}), kRebuilt[0]);
  worker.engine->Offer(2, at::zeros({3, 1667}));
  auto second = worker.engine->Reduce(1, true, at::ones({3030}), kRebuilt[1]);
  first->waitAndThrow();
  second->waitAndThrow();
  EXPECT_TRUE(at::equal(first->value().toTensor(), at::ones({5004})));
}

}  // namespace
}  // namespace elastiquant
