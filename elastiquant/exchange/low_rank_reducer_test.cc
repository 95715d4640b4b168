#include "elastiquant/exchange/low_rank_reducer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <optional>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/low_rank/matrix_testing.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

using Vectors = std::vector<std::vector<float>>;

// Two buckets of tensors, and between them one that has no factors.
const std::vector<std::vector<TensorShape>> kBuckets{
    {{30, 40}, {1, 30}, {8, 90}}, {{1, 700}}, {{50, 20}}};
constexpr size_t kPlain = 1;

size_t Elements(const std::vector<TensorShape>& shapes) {
  size_t n = 0;
  for (const TensorShape& shape : shapes) n += shape.rows * shape.cols;
  return n;
}

struct LowRankWorker {
  LowRankWorker(Communicator* c, const std::string& spec,
                const std::vector<std::vector<TensorShape>>& shapes = kBuckets,
                ReducerOptions options = {.seed = 5}, std::optional<Exchange> exchange = {})
      : comm(c) {
    for (const auto& tensors : shapes) gradients.emplace_back(Elements(tensors));
    std::vector<GradientBucket> buckets;
    for (size_t b = 0; b < shapes.size(); ++b) {
      const bool plain = shapes.size() > 1 && b == kPlain;
      auto codec = CodecForShapes(MakeCodec(plain ? "bf16" : spec).value(), shapes[b]).value();
      buckets.push_back({gradients[b], std::move(codec), "layer" + std::to_string(b),
                         plain ? std::nullopt : exchange});
    }
    reducer = GradientReducer::Create(comm, std::move(buckets), std::move(options)).value();
  }
  StepOutcome Step(uint64_t step) {
    EXPECT_TRUE(reducer->BeginStep(step).ok());
    for (size_t k = 0; k < gradients.size(); ++k) {  // every worker in an order of its own
      const size_t b = (k + static_cast<size_t>(comm->rank())) % gradients.size();
      EXPECT_TRUE(reducer->MarkReady(b).ok());
    }
    const auto outcome = reducer->Finish();
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return outcome.ok() ? *outcome : StepOutcome{};
  }
  void Fill(uint64_t step) {
    for (size_t b = 0; b < gradients.size(); ++b) {
      const auto seed =
          static_cast<unsigned>(100 * step + 10 * b) + static_cast<unsigned>(comm->rank()) + 1;
      // In place, as the reducer has a span of it.
      std::ranges::copy(GaussianValues(gradients[b].size(), seed), gradients[b].begin());
    }
  }
  Vectors Remembered() {
    Vectors all;
    for (size_t b = 0; b < gradients.size(); ++b) {
      for (const auto field : reducer->Memory(b)) all.emplace_back(field.begin(), field.end());
    }
    return all;
  }
  uint32_t Hash() const {
    uint32_t crc = 0;
    for (const auto& g : gradients) {
      crc = Crc32c({reinterpret_cast<const uint8_t*>(g.data()), g.size() * sizeof(float)}, crc);
    }
    return crc;
  }

  Communicator* comm;
  Vectors gradients;
  std::unique_ptr<GradientReducer> reducer;
};

class LowRankReducer : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, LowRankReducer, testing::Values(1, 2, 3, 4));

// The mean of N matrices of rank 1 has rank N.
TEST_P(LowRankReducer, AMeanOfItsRankIsExact) {
  const int world = GetParam();
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    LowRankWorker worker(&comm, "powersgd:rank=4", {{{40, 60}}});
    std::vector<double> mean(2400);
    for (int r = 0; r < world; ++r) {
      const std::vector<float> m = MatrixOf(40, 60, {3.0 + r}, static_cast<unsigned>(r));
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(m[i]) / world;
      if (r == comm.rank()) std::ranges::copy(m, worker.gradients[0].begin());
    }
    ASSERT_FALSE(worker.Step(0).skipped);
    for (size_t i = 0; i < mean.size(); ++i) {
      ASSERT_NEAR(worker.gradients[0][i], mean[i], 2e-6) << i;
    }
  });
}

// What N workers come to is what the codec makes of their mean, from the same basis.
TEST_P(LowRankReducer, IsTheCodecOfTheMean) {
  const int world = GetParam();
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    const std::vector<TensorShape> shapes{{30, 40}, {1, 30}, {8, 90}};
    const size_t n = Elements(shapes);
    LowRankWorker worker(&comm, "powersgd", {shapes});
    const std::vector<float> basis = GaussianValues(n, 999);
    std::ranges::copy(basis, worker.reducer->Memory(0)[0].begin());
    std::vector<float> mean(n);
    for (int r = 0; r < world; ++r) {
      const std::vector<float> g = GaussianValues(n, static_cast<unsigned>(r) + 7);
      for (size_t i = 0; i < n; ++i) mean[i] += g[i] / static_cast<float>(world);
      if (r == comm.rank()) std::ranges::copy(g, worker.gradients[0].begin());
    }
    worker.Step(0);
    const auto codec = CodecForShapes(MakeCodec("powersgd").value(), shapes).value();
    std::vector<uint8_t> frame(codec->MaxFrameBytes(n));
    std::vector<float> after(n), expected(n);
    Workspace work;
    const std::span<const float> in(basis);
    const std::span<float> out(after);
    const size_t size =
        codec->EncodeNext(mean, {1}, work, frame, StateIn(&in, 1), StateOut(&out, 1)).value();
    ASSERT_TRUE(DecodeFrame(std::span(frame).first(size), work, expected).ok());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(worker.gradients[0][i], expected[i], 1e-5) << i;
      ASSERT_NEAR(worker.reducer->Memory(0)[0][i], after[i], 1e-5) << i;
    }
  });
}

std::vector<uint32_t> Hashes(int world, const std::string& spec, int threads) {
  std::vector<uint32_t> hashes(static_cast<size_t>(world));
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    LowRankWorker worker(&comm, spec, kBuckets, {.seed = 5, .threads = threads});
    uint32_t& hash = hashes[static_cast<size_t>(comm.rank())];
    for (uint64_t step = 0; step < 4; ++step) {
      worker.Fill(step);
      ASSERT_FALSE(worker.Step(step).skipped);
      hash = static_cast<uint32_t>(Mix64(hash ^ Mix64(worker.Hash())));
    }
  });
  return hashes;
}

TEST_P(LowRankReducer, ReplicasAndRunsAgreeBitForBit) {
  for (const std::string spec :
       {"powersgd", "powersgd|ef", "powersgd:rank=1,factors=bf16|ef"}) {
    const auto hashes = Hashes(GetParam(), spec, 1);
    for (const uint32_t hash : hashes) EXPECT_EQ(hash, hashes[0]) << spec;
    EXPECT_EQ(Hashes(GetParam(), spec, 3), hashes) << spec;
  }
}

// Sum of the gradients = N x the sum of what was applied + what the workers remember.
TEST_P(LowRankReducer, WithErrorFeedbackNothingIsLost) {
  const int world = GetParam();
  for (const std::string spec : {"powersgd|ef", "powersgd:rank=1,factors=bf16|ef"}) {
    std::mutex mutex;
    Vectors in(3), out(3), kept(3);
    for (size_t b = 0; b < 3; ++b) {
      for (auto* sums : {&in, &out, &kept}) (*sums)[b].resize(Elements(kBuckets[b]));
    }
    const auto add = [&](Vectors& sums, size_t b, std::span<const float> values) {
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < values.size(); ++i) sums[b][i] += values[i];
    };
    RunWorld(WorldOptions(world), [&](Communicator& comm) {
      LowRankWorker worker(&comm, spec);
      for (uint64_t step = 0; step < 6; ++step) {
        worker.Fill(step);
        for (size_t b = 0; b < 3; ++b) add(in, b, worker.gradients[b]);
        ASSERT_FALSE(worker.Step(step).skipped);
        for (size_t b = 0; b < 3; ++b) add(out, b, worker.gradients[b]);
      }
      for (size_t b = 0; b < 3; ++b) {
        if (b == kPlain) continue;
        EXPECT_EQ(worker.reducer->OwnedChunk(b).size, 0u);
        add(kept, b, worker.reducer->Memory(b)[0]);
      }
    });
    for (size_t b = 0; b < 3; ++b) {
      if (b == kPlain) continue;
      for (size_t i = 0; i < in[b].size(); ++i) {
        ASSERT_NEAR(in[b][i], out[b][i] + kept[b][i], 2e-4) << spec << b << " at " << i;
      }
    }
    EXPECT_GT(SquaredNorm(kept[0]), 0);
  }
}

// Of a steady gradient the warm start comes to the best approximation of rank 2, which one
// iteration from a drawn basis misses.
TEST_P(LowRankReducer, TheBasisIsKept) {
  const int world = GetParam();
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    const std::vector<double> singular{8, 6, 3, 2, 1};
    const std::vector<float> mean = MatrixOf(40, 60, singular, 3);
    // What differs between workers cancels out.
    const std::vector<float> own = MatrixOf(40, 60, {4, 4, 4}, 50);
    const float sign = comm.rank() + 1 == world && world % 2 == 1 ? 0.0f
                       : comm.rank() % 2 == 0                     ? 1.0f
                                                                  : -1.0f;
    LowRankWorker worker(&comm, "powersgd", {{{40, 60}}});
    double error = 0;
    for (uint64_t step = 0; step < 12; ++step) {
      for (size_t i = 0; i < mean.size(); ++i) {
        worker.gradients[0][i] = mean[i] + sign * own[i];
      }
      ASSERT_FALSE(worker.Step(step).skipped);
      error = SquaredError(worker.gradients[0], mean);
      if (step == 0) {
        EXPECT_GT(error, 1.02 * 14);
      }
    }
    EXPECT_NEAR(error, 3 * 3 + 2 * 2 + 1, 0.02);
  });
}

TEST_P(LowRankReducer, ANanAnywhereSkipsTheStepAndLeavesTheMemory) {
  const int world = GetParam();
  const std::pair<size_t, size_t> places[] = {{0, 7}, {0, 1200}, {0, 1250}, {1, 3}, {2, 999}};
  for (const auto& [bucket, at] : places) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::vector<std::string> reasons(static_cast<size_t>(world));
      RunWorld(WorldOptions(world), [&, b = bucket, i = at](Communicator& comm) {
        LowRankWorker worker(&comm, "powersgd|ef");
        worker.Fill(0);
        worker.Step(0);
        const Vectors before = worker.Remembered();
        worker.Fill(1);
        if (comm.rank() == world - 1) worker.gradients[b][i] = bad;
        const StepOutcome outcome = worker.Step(1);
        EXPECT_TRUE(outcome.skipped);
        reasons[static_cast<size_t>(comm.rank())] = outcome.reason;
        EXPECT_EQ(worker.Remembered(), before);
        worker.Fill(2);
        EXPECT_FALSE(worker.Step(2).skipped) << "the next one is none the worse";
        for (const float v : worker.gradients[b]) ASSERT_TRUE(std::isfinite(v));
      });
      for (const std::string& reason : reasons) {
        EXPECT_EQ(reason, reasons[0]);
        EXPECT_NE(reason.find("worker " + std::to_string(world - 1)), std::string::npos)
            << reason;
        EXPECT_NE(reason.find("layer" + std::to_string(bucket)), std::string::npos) << reason;
      }
    }
  }
}

TEST_P(LowRankReducer, FactorsBeyondFloatSkipTheStep) {
  RunWorld(WorldOptions(GetParam()), [](Communicator& comm) {
    LowRankWorker worker(&comm, "powersgd", {{{40, 60}}});
    std::ranges::fill(worker.gradients[0], 1e38f);  // Q has the root of 40 times as much
    EXPECT_TRUE(worker.Step(0).skipped);
    std::ranges::fill(worker.gradients[0], 1.0f);
    EXPECT_FALSE(worker.Step(1).skipped);
    for (const float v : worker.gradients[0]) ASSERT_NEAR(v, 1, 1e-5);
  });
}

TEST_P(LowRankReducer, WhatIsRememberedCanBeTakenAlong) {
  RunWorld(WorldOptions(GetParam()), [](Communicator& comm) {
    LowRankWorker through(&comm, "powersgd|ef");
    std::vector<Vectors> expected;
    Vectors remembered;
    for (uint64_t step = 0; step < 4; ++step) {
      through.Fill(step);
      through.Step(step);
      expected.push_back(through.gradients);
      if (step == 1) remembered = through.Remembered();
    }
    LowRankWorker resumed(&comm, "powersgd|ef");
    auto from = remembered.begin();
    for (size_t b = 0; b < 3; ++b) {
      for (const auto field : resumed.reducer->Memory(b)) {
        std::ranges::copy(*from++, field.begin());
      }
    }
    for (uint64_t step = 2; step < 4; ++step) {
      resumed.Fill(step);
      resumed.Step(step);
      EXPECT_EQ(resumed.gradients, expected[step]);
    }
    EXPECT_EQ(resumed.Remembered(), through.Remembered());
  });
}

// 2 (N - 1) / N of the factors and no more: P has 2 x 1024 numbers, Q 2 x 2048.
TEST(LowRankReducerBytes, AreThoseOfTheFactors) {
  for (const auto& [spec, width] : {std::pair<std::string, size_t>{"powersgd:rank=2|ef", 4},
                                    {"powersgd:factors=bf16", 2}}) {
    RunWorld(WorldOptions(4), [&, spec = spec, width = width](Communicator& comm) {
      LowRankWorker worker(&comm, spec, {{{1024, 2048}}});
      std::ranges::copy(GaussianValues(1024 * 2048, 3), worker.gradients[0].begin());
      ASSERT_FALSE(worker.Step(0).skipped);
      ASSERT_TRUE(comm.Barrier().ok());
      const size_t overhead = kMessageHeaderBytes + kFrameHeaderBytes;
      const size_t chunks = (2048 + 4096) / 4 * width;
      EXPECT_EQ(comm.traffic().bytes_up, 6 * (chunks + 2 * overhead));
      EXPECT_EQ(comm.traffic().bytes_down, comm.traffic().bytes_up);
      EXPECT_EQ(worker.reducer->TakeStats().coordinates, 1024u * 2048u);
      EXPECT_EQ(worker.reducer->TakeStats().coordinates, 0u);
    });
  }
}

TEST(LowRankReducerStats, MeasureWhatTheColumnsOfPLeave) {
  RunWorld(WorldOptions(1), [](Communicator& comm) {
    LowRankWorker worker(&comm, "powersgd|ef", {{{40, 60}, {1, 20}}}, {.measure_every = 2});
    worker.Fill(0);
    const double norm = SquaredNorm(worker.gradients[0]);
    worker.Step(0);
    const ReducerStats stats = worker.reducer->TakeStats();
    EXPECT_NEAR(stats.squared_norm, norm, 1e-6 * norm);
    const double lost = SquaredNorm(worker.reducer->Memory(0)[0]);
    EXPECT_NEAR(stats.squared_error, lost, 1e-5 * norm);
    EXPECT_GT(stats.encode_seconds, 0);
    EXPECT_GT(stats.decode_seconds, 0);
    worker.Fill(1);
    worker.Step(1);
    EXPECT_EQ(worker.reducer->TakeStats().squared_norm, 0);
  });
}

TEST(LowRankReducerCalls, OnReducedTellsOfEachBucketWhenItIsTheMean) {
  RunWorld(WorldOptions(3), [](Communicator& comm) {
    std::vector<std::pair<size_t, bool>> told;
    Vectors seen(3);
    LowRankWorker* self = nullptr;
    ReducerOptions options;
    options.on_reduced = [&](size_t bucket, bool is_mean) {
      told.emplace_back(bucket, is_mean);
      seen[bucket] = self->gradients[bucket];
    };
    LowRankWorker worker(&comm, "powersgd|ef", kBuckets, options);
    self = &worker;
    worker.Fill(0);
    worker.Step(0);
    EXPECT_EQ(told, (std::vector<std::pair<size_t, bool>>{{1, true}, {0, true}, {2, true}}));
    EXPECT_EQ(seen, worker.gradients);
    told.clear();
    worker.Fill(1);
    worker.gradients[0][1210] = std::numeric_limits<float>::infinity();  // has no factors
    EXPECT_TRUE(worker.Step(1).skipped);
    EXPECT_EQ(told, (std::vector<std::pair<size_t, bool>>{{1, true}, {0, false}, {2, true}}));
  });
}

TEST(LowRankReducerCalls, OutOfOrderAreRefused) {
  auto comm = Communicator::Connect({}).value();
  LowRankWorker worker(comm.get(), "powersgd|ef");
  EXPECT_FALSE(worker.reducer->MarkReady(0).ok());
  EXPECT_FALSE(worker.reducer->Finish().ok());
  ASSERT_TRUE(worker.reducer->BeginStep(0).ok());
  EXPECT_FALSE(worker.reducer->BeginStep(1).ok());
  EXPECT_FALSE(worker.reducer->MarkReady(3).ok());
  ASSERT_TRUE(worker.reducer->MarkReady(2).ok());
  EXPECT_FALSE(worker.reducer->MarkReady(2).ok());
  EXPECT_FALSE(worker.reducer->Finish().ok()) << "bucket 0 was never ready";
}

TEST(LowRankReducerCalls, OnlyBucketsWithoutFactorsChangeTheirCodec) {
  auto comm = Communicator::Connect({}).value();
  LowRankWorker worker(comm.get(), "powersgd|ef");
  EXPECT_TRUE(worker.reducer->SetCodec(kPlain, MakeCodec("fp16").value()).ok());
  const Status refused = worker.reducer->SetCodec(0, MakeCodec("powersgd:rank=1|ef").value());
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("cannot follow"), std::string::npos);
}

// The same codec as an all-gather: each worker's own factors.
TEST(LowRankReducerCalls, AnAllGatherCanBeAskedForInstead) {
  std::vector<uint32_t> hashes(3);
  RunWorld(WorldOptions(3), [&](Communicator& comm) {
    LowRankWorker worker(&comm, "powersgd|ef", kBuckets, {}, Exchange::kAllGather);
    for (uint64_t step = 0; step < 3; ++step) {
      worker.Fill(step);
      ASSERT_FALSE(worker.Step(step).skipped);
    }
    hashes[static_cast<size_t>(comm.rank())] = worker.Hash();
  });
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]);
}

}  // namespace
}  // namespace elastiquant
