// Codecs that remember, and codecs whose frames go to all, in the compressed all-reduce.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "elastiquant/exchange/chunk.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/exchange/reducer_testing.h"

namespace elastiquant {
namespace {

constexpr size_t kMemoryLengths[] = {7, 3000, 20011};

// A worker with its gradients and reducer.
struct RememberingWorker {
  RememberingWorker(Communicator* c, const std::string& codec, ReducerOptions options = {})
      : comm(c) {
    std::vector<GradientBucket> buckets;
    for (const size_t n : kMemoryLengths) gradients.emplace_back(n);
    for (auto& g : gradients) buckets.push_back({g, MakeCodec(codec).value(), "layer"});
    reducer = GradientReducer::Create(comm, std::move(buckets), std::move(options)).value();
  }
  StepOutcome Step(uint64_t step) {
    EXPECT_TRUE(reducer->BeginStep(step).ok());
    for (size_t b = 0; b < gradients.size(); ++b) EXPECT_TRUE(reducer->MarkReady(b).ok());
    const auto outcome = reducer->Finish();
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return outcome.ok() ? *outcome : StepOutcome{};
  }
  // Everything that is remembered.
  Vectors Remembered() {
    Vectors all;
    for (size_t b = 0; b < gradients.size(); ++b) {
      for (const auto field : reducer->Memory(b)) all.emplace_back(field.begin(), field.end());
    }
    return all;
  }
  void Remember(const Vectors& all) {
    auto from = all.begin();
    for (size_t b = 0; b < gradients.size(); ++b) {
      for (const auto field : reducer->Memory(b)) std::ranges::copy(*from++, field.begin());
    }
  }

  Communicator* comm;
  Vectors gradients;
  std::unique_ptr<GradientReducer> reducer;
};

class Memory : public testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(All, Memory,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values("elastic:bits=2|ef", "bf16|ef",
                                                          "dither:bits=2|ef",
                                                          "elastic:bits=2|dgc:momentum=0")));

// Sum of the gradients = N x the sum of what was applied + what is remembered: by the workers
// of their own, and by the owners of the means.
TEST_P(Memory, NothingIsLost) {
  const auto [world, codec] = GetParam();
  std::mutex mutex;
  std::vector<std::vector<double>> in(3), out(3), kept(3);
  for (size_t b = 0; b < 3; ++b) {
    for (auto* sums : {&in, &out, &kept}) (*sums)[b].resize(kMemoryLengths[b]);
  }
  RunWorld(WorldOptions(world), [&, world = world, codec = codec](Communicator& comm) {
    RememberingWorker worker(&comm, codec);
    for (uint64_t step = 0; step < 5; ++step) {
      Fill(worker.gradients, comm.rank(), step);
      for (size_t b = 0; b < 3; ++b) {
        std::lock_guard lock(mutex);
        for (size_t i = 0; i < kMemoryLengths[b]; ++i) in[b][i] += worker.gradients[b][i];
      }
      ASSERT_FALSE(worker.Step(step).skipped);
      for (size_t b = 0; b < 3; ++b) {
        std::lock_guard lock(mutex);
        for (size_t i = 0; i < kMemoryLengths[b]; ++i) out[b][i] += worker.gradients[b][i];
      }
    }
    for (size_t b = 0; b < 3; ++b) {
      const Chunk owned = worker.reducer->OwnedChunk(b);
      const std::span<float> residual = worker.reducer->Memory(b).back();
      std::lock_guard lock(mutex);
      for (size_t i = 0; i < kMemoryLengths[b]; ++i) {
        const bool own = i >= owned.begin && i < owned.begin + owned.size;
        kept[b][i] += (own ? world : 1.0) * residual[i];
      }
    }
  });
  for (size_t b = 0; b < 3; ++b) {
    for (size_t i = 0; i < kMemoryLengths[b]; ++i) {
      // Each worker has added the same means up.
      ASSERT_NEAR(in[b][i], out[b][i] + kept[b][i], 1e-5 * world * 8) << b << " at " << i;
    }
  }
}

TEST_P(Memory, CanBeTakenAlongToAnotherReducer) {
  const auto [world, codec] = GetParam();
  RunWorld(WorldOptions(world), [codec = codec](Communicator& comm) {
    RememberingWorker through(&comm, codec);
    std::vector<Vectors> expected;
    Vectors remembered;
    for (uint64_t step = 0; step < 4; ++step) {
      Fill(through.gradients, comm.rank(), step);
      through.Step(step);
      expected.push_back(through.gradients);
      if (step == 1) remembered = through.Remembered();
    }
    RememberingWorker resumed(&comm, codec);
    resumed.Remember(remembered);
    for (uint64_t step = 2; step < 4; ++step) {
      Fill(resumed.gradients, comm.rank(), step);
      resumed.Step(step);
      EXPECT_EQ(resumed.gradients, expected[step]);
    }
    EXPECT_EQ(resumed.Remembered(), through.Remembered());
  });
}

TEST_P(Memory, ASkippedStepLeavesItAsItWas) {
  const auto [world, codec] = GetParam();
  RunWorld(WorldOptions(world), [&, world = world, codec = codec](Communicator& comm) {
    RememberingWorker worker(&comm, codec);
    Fill(worker.gradients, comm.rank(), 0);
    worker.Step(0);
    const Vectors before = worker.Remembered();
    Fill(worker.gradients, comm.rank(), 1);
    if (comm.rank() == world - 1) {
      worker.gradients[1][2000] = std::numeric_limits<float>::quiet_NaN();
    }
    const StepOutcome outcome = worker.Step(1);
    EXPECT_TRUE(outcome.skipped);
    EXPECT_NE(outcome.reason.find("worker " + std::to_string(world - 1) + ": NaN in bucket 1"),
              std::string::npos)
        << outcome.reason;
    EXPECT_EQ(worker.Remembered(), before);
  });
}

TEST(AllGather, TheMeanOfAllFramesIsTheSameOnAll) {
  for (const int world : {1, 3, 8}) {
    std::vector<Vectors> results(static_cast<size_t>(world));
    RunWorld(WorldOptions(world), [&](Communicator& comm) {
      // 8 bits of a smooth vector: near enough to the mean to tell it from any other.
      RememberingWorker worker(&comm, "elastic:bits=8,levels=uniform,bucket=64|dgc:momentum=0");
      Fill(worker.gradients, comm.rank(), 0);
      worker.Step(0);
      results[static_cast<size_t>(comm.rank())] = worker.gradients;
    });
    for (const Vectors& result : results) EXPECT_EQ(result, results[0]);
    for (size_t b = 0; b < 3; ++b) {
      for (size_t i = 0; i < kMemoryLengths[b]; ++i) {
        double mean = 0;
        for (int r = 0; r < world; ++r) mean += static_cast<double>(Rough(r, b, i, 0)) / world;
        ASSERT_NEAR(results[0][b][i], mean, 8.0 / 127) << b << " at " << i;
      }
    }
  }
}

TEST(SetCodec, TakesOneThatFitsAndKeepsWhatIsRemembered) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    RememberingWorker worker(&comm, "elastic:bits=4|ef");
    Fill(worker.gradients, comm.rank(), 0);
    worker.Step(0);
    const Vectors before = worker.Remembered();
    const auto set = [&](const char* spec) {
      return worker.reducer->SetCodec(1, MakeCodec(spec).value());
    };
    for (const char* bad : {"fp32", "elastic:bits=4", "elastic|dgc"}) {
      const Status refused = set(bad);
      EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << bad;
      EXPECT_NE(refused.message().find("cannot follow"), std::string::npos);
    }
    ASSERT_TRUE(set("elastic:bits=4,levels=0.1/0.2/0.3/0.4/0.5/0.6/1|ef").ok());
    EXPECT_EQ(worker.Remembered(), before);
    Fill(worker.gradients, comm.rank(), 1);
    EXPECT_FALSE(worker.Step(1).skipped);
    const auto sums = comm.AllGather(std::bit_cast<uint64_t>(
        std::accumulate(worker.gradients[1].begin(), worker.gradients[1].end(), 0.0)));
    EXPECT_EQ((*sums)[0], (*sums)[1]);
  });
}

// A codec that asks for the one may be given the other.
TEST(AllGather, CanBeChosenAndRefused) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    std::vector<float> gradient(5000, 1.0f + static_cast<float>(comm.rank()));
    const auto make = [&](const std::string& codec, Exchange exchange) {
      return GradientReducer::Create(
          &comm, {{gradient, MakeCodec(codec).value(), "layer", exchange}}, {});
    };
    auto reducer = make("bf16", Exchange::kAllGather);
    ASSERT_TRUE(reducer.ok()) << reducer.status().ToString();
    const Traffic before = comm.traffic();
    ASSERT_TRUE((*reducer)->BeginStep(0).ok());
    ASSERT_TRUE((*reducer)->MarkReady(0).ok());
    ASSERT_TRUE((*reducer)->Finish().ok());
    EXPECT_EQ(gradient, std::vector<float>(5000, 1.5f));
    EXPECT_GE(comm.traffic().bytes_up - before.bytes_up, 2 * gradient.size());
    EXPECT_EQ((*reducer)->OwnedChunk(0).size, 0u);

    const auto refused = make("bf16|dgc", Exchange::kTwoPhase);
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refused.status().message().find("all-gather"), std::string::npos);
  });
}

TEST(AllGather, MeasuresWhatWasLost) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    ReducerOptions options;
    options.measure_every = 1;
    RememberingWorker worker(&comm, "bf16|dgc:momentum=0", options);
    Fill(worker.gradients, comm.rank(), 0);
    double norm = 0;
    for (const auto& g : worker.gradients) {
      for (const float v : g) norm += static_cast<double>(v) * v;
    }
    worker.Step(0);
    double lost = 0;
    for (size_t b = 0; b < 3; ++b) {
      const auto memory = worker.reducer->Memory(b);
      for (const float r : memory.back()) lost += static_cast<double>(r) * r;
    }
    const ReducerStats stats = worker.reducer->TakeStats();
    EXPECT_NEAR(stats.squared_norm, norm, 1e-6 * norm);
    EXPECT_NEAR(stats.squared_error, lost, 1e-6 * lost);
    EXPECT_GT(lost, 0);
  });
}

TEST(OnReduced, TellsOfEachBucketOnceAllOfItIsTheMean) {
  for (const char* codec : {"fp32", "bf16|dgc"}) {
    RunWorld(WorldOptions(3), [codec](Communicator& comm) {
      std::vector<size_t> told;
      Vectors seen(3);
      RememberingWorker* self = nullptr;
      ReducerOptions options;
      options.on_reduced = [&](size_t bucket, bool is_mean) {
        if (!is_mean) return;
        told.push_back(bucket);
        seen[bucket] = self->gradients[bucket];
      };
      RememberingWorker worker(&comm, codec, options);
      self = &worker;
      Fill(worker.gradients, comm.rank(), 0);
      worker.Step(0);
      EXPECT_EQ(told, (std::vector<size_t>{0, 1, 2}));
      EXPECT_EQ(seen, worker.gradients);
      // Not of a bucket that is no mean.
      told.clear();
      Fill(worker.gradients, comm.rank(), 1);
      worker.gradients[1][3] = std::numeric_limits<float>::infinity();
      EXPECT_TRUE(worker.Step(1).skipped);
      EXPECT_EQ(told, (std::vector<size_t>{0, 2}));
    });
  }
}

}  // namespace
}  // namespace elastiquant
