// Sparse messages by way of the owners of chunks, against the all-gather.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "elastiquant/exchange/reducer_testing.h"
#include "elastiquant/exchange/sparse_choice.h"
#include "elastiquant/exchange/sparse_sum.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

// All that rank after rank has and remembers after each of some steps.
std::vector<Vectors> RunSteps(int world, const std::string& codec,
                              std::optional<Exchange> exchange) {
  std::vector<Vectors> seen(static_cast<size_t>(world));
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    Worker worker(&comm, codec, {0, 1, 3, 3000, 20011}, exchange);
    Vectors& mine = seen[static_cast<size_t>(comm.rank())];
    for (uint64_t step = 0; step < 4; ++step) {
      worker.Fill(step);
      EXPECT_FALSE(worker.Step(step).skipped);
      for (const auto& g : worker.gradients) mine.push_back(g);
      for (const auto& m : worker.Remembered()) mine.push_back(m);
      for (size_t b = 0; b < worker.gradients.size(); ++b) {
        EXPECT_EQ(worker.reducer->OwnedChunk(b).size, 0u) << "a mean has lost nothing";
      }
    }
  });
  return seen;
}

class SparseScatterTest : public testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(
    All, SparseScatterTest,
    testing::Combine(testing::Values(1, 2, 3, 4),
                     testing::Values("topk:ratio=0.01|ef", "topk:ratio=0.3,bits=32|dgc",
                                     "topk:ratio=1|ef", "threshold:value=0.3|ef",
                                     "chunktopk:chunk=256,k=4,bits=exact|ef",
                                     "randomk:ratio=0.1", "atomo:ratio=0.05", "dgc")));

// As the all-gather keeps "sum of inputs = sum of what was sent + residual", so does this.
TEST_P(SparseScatterTest, LeavesTheBitsOfTheAllGatherAndItsMemory) {
  const auto [world, codec] = GetParam();
  const auto gathered = RunSteps(world, codec, Exchange::kAllGather);
  EXPECT_EQ(RunSteps(world, codec, Exchange::kSparseScatter), gathered);
  EXPECT_EQ(RunSteps(world, codec, std::nullopt), gathered);
}

// What the codec sees is said beside: the sum of inputs, and what has been sent and kept.
TEST_P(SparseScatterTest, LosesNothing) {
  const auto [world, codec] = GetParam();
  if (std::string(codec).find("|ef") == std::string::npos) return;
  constexpr size_t kLength = 5000;
  std::mutex mutex;
  std::vector<double> in(kLength), out(kLength);
  RunWorld(WorldOptions(world), [&, codec = codec](Communicator& comm) {
    Worker worker(&comm, codec, {kLength}, Exchange::kSparseScatter);
    for (uint64_t step = 0; step < 5; ++step) {
      worker.Fill(step);
      const std::vector<float> mine = worker.gradients[0];
      ASSERT_FALSE(worker.Step(step).skipped);
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < kLength; ++i) {
        in[i] += mine[i];
        out[i] += worker.gradients[0][i];  // each worker adds the same mean
      }
    }
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < kLength; ++i) out[i] += worker.reducer->Memory(0)[0][i];
  });
  for (size_t i = 0; i < kLength; ++i) ASSERT_NEAR(in[i], out[i], 1e-5 * world * 8) << i;
}

// Values of which the workers keep the same coordinates, or each others'.
void FillPeaks(Worker& worker, bool same) {
  for (auto& g : worker.gradients) {
    for (size_t i = 0; i < g.size(); ++i) {
      const size_t peak = same ? 0 : static_cast<size_t>(worker.comm->rank());
      g[i] = i % 50 == peak ? 2.0f + std::abs(Rough(worker.comm->rank(), 0, i, 0)) : 0.001f;
    }
  }
}

TEST(SparseExchange, TakesTheWayThatMovesFewerBytes) {
  for (const bool same : {true, false}) {
    for (const int world : {2, 4, 8}) {
      SCOPED_TRACE(std::to_string(world) + (same ? " same" : " others"));
      RunWorld(WorldOptions(world), [&](Communicator& comm) {
        const auto bytes = [&](std::optional<Exchange> exchange) {
          Worker worker(&comm, "topk:ratio=0.02", {100000}, exchange);
          std::vector<uint64_t> of_steps;
          for (uint64_t step = 0; step < 2; ++step) {
            FillPeaks(worker, same);
            of_steps.push_back(worker.BytesOfStep(step));
          }
          return of_steps;
        };
        const auto total = [&](uint64_t mine) {
          const auto all = comm.AllGather(mine).value();
          return std::accumulate(all.begin(), all.end(), uint64_t{0});
        };
        const auto gather = bytes(Exchange::kAllGather);
        const auto scatter = bytes(Exchange::kSparseScatter);
        const auto chosen = bytes(std::nullopt);
        EXPECT_EQ(chosen[0], gather[0]) << "the first step measures";
        EXPECT_EQ(total(chosen[1]), std::min(total(gather[1]), total(scatter[1])));
        if (same && world > 2) {
          EXPECT_LT(total(scatter[1]), total(gather[1]));
        }
        if (!same && world == 2) {
          EXPECT_LT(total(gather[1]), total(scatter[1]));
        }
      });
    }
  }
}

TEST(SparseExchange, IsMeasuredAgainAndFollowsTheGradients) {
  RunWorld(WorldOptions(4), [](Communicator& comm) {
    Worker worker(&comm, "topk:ratio=0.02", {20000}, std::nullopt);
    std::vector<uint64_t> bytes;
    for (uint64_t step = 0; step < SparseChoice::kPeriod + 2; ++step) {
      FillPeaks(worker, step >= 2);
      bytes.push_back(worker.BytesOfStep(step));
    }
    EXPECT_EQ(bytes[0], bytes[1]);
    const uint64_t gather = bytes[SparseChoice::kPeriod - 1];
    EXPECT_EQ(bytes[SparseChoice::kPeriod], gather);
    EXPECT_LT(bytes[SparseChoice::kPeriod + 1], gather);
  });
}

TEST(SparseExchange, ADenseUnionCostsNoMoreThanItsValues) {
  constexpr size_t kLength = 40000;
  RunWorld(WorldOptions(4), [](Communicator& comm) {
    Worker worker(&comm, "topk:ratio=1,bits=32", {kLength}, Exchange::kSparseScatter);
    worker.Fill(0);
    // Three parts of a quarter, whose positions cost a bit each, and three times the sum.
    EXPECT_LT(worker.BytesOfStep(0), 3 * (kLength / 4 * 4) * 2 + 3 * kLength / 4 / 8 + 1500);
  });
  std::vector<float> sum(1000);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = Rough(0, 0, i, 0);
  std::vector<uint8_t> frame(MaxSparseSumBytes(sum.size()));
  Workspace work;
  EXPECT_LE(EncodeSparseSum(sum, {}, work, frame).value(), 32 + 4 * sum.size());
}

TEST(SparseExchange, ANanSkipsTheStepOnAllForTheSameReason) {
  for (const std::optional<Exchange> exchange :
       {std::optional(Exchange::kSparseScatter), std::optional<Exchange>()}) {
    RunWorld(WorldOptions(3), [&](Communicator& comm) {
      Worker worker(&comm, "topk:ratio=0.1|ef", {9, 1000}, exchange);
      for (uint64_t step = 0; step < 3; ++step) {
        const Vectors before = worker.Remembered();
        worker.Fill(step);
        const bool spoil = step < 2;  // also the step that measures
        if (spoil && comm.rank() > 0) {
          worker.gradients[1][600 - static_cast<size_t>(comm.rank())] =
              std::numeric_limits<float>::quiet_NaN();
        }
        const StepOutcome outcome = worker.Step(step);
        EXPECT_EQ(outcome.skipped, spoil);
        if (!spoil) continue;
        EXPECT_EQ(outcome.reason, "worker 1: NaN in bucket 1 (layer) at 599");
        EXPECT_EQ(worker.Remembered(), before);
      }
    });
  }
}

TEST(SparseExchange, ASumTooLargeSkipsTheStepAsAnAllGatherDoes) {
  for (const Exchange exchange : {Exchange::kSparseScatter, Exchange::kAllGather}) {
    RunWorld(WorldOptions(3), [exchange](Communicator& comm) {
      Worker worker(&comm, "topk:ratio=0.1,bits=32", {9, 1000}, exchange);
      worker.Fill(0);
      for (const size_t at : {500, 900}) {
        worker.gradients[1][at] = std::numeric_limits<float>::max();
      }
      const StepOutcome outcome = worker.Step(0);
      EXPECT_TRUE(outcome.skipped);
      EXPECT_EQ(outcome.reason, "the sum of all workers: infinity in bucket 1 (layer) at 500");
      worker.Fill(1);
      EXPECT_FALSE(worker.Step(1).skipped);
    });
  }
}

TEST(SparseExchange, ALostWorkerStopsTheOthers) {
  // It never sends its sum.
  ExpectALostWorkerStopsTheOthers("topk|ef", Exchange::kSparseScatter);
}

TEST(SparseExchange, FollowsACodecThatChanges) {
  RunWorld(WorldOptions(3), [](Communicator& comm) {
    Worker worker(&comm, "dgc", {30000}, std::nullopt);
    Worker gathering(&comm, "dgc", {30000}, Exchange::kAllGather);
    const auto codec = MakeCodec("dgc").value();
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (uint64_t step = 0; step < 3; ++step) {
        for (Worker* w : {&worker, &gathering}) {
          if (step == 0) {
            ASSERT_TRUE(w->reducer->SetCodec(0, CodecForEpoch(codec, epoch)).ok());
          }
          w->Fill(step);
          EXPECT_FALSE(w->Step(static_cast<uint64_t>(epoch) * 3 + step).skipped);
        }
        EXPECT_EQ(worker.gradients, gathering.gradients);
      }
    }
    EXPECT_EQ(worker.Remembered(), gathering.Remembered());
  });
}

TEST(SparseExchange, IsRefusedToFramesThatCannotBeCut) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    std::vector<float> gradient(100);
    for (const char* codec : {"fp32", "topk:bits=8", "topk|rotate"}) {
      const auto reducer = GradientReducer::Create(
          &comm, {{gradient, MakeCodec(codec).value(), "layer", Exchange::kSparseScatter}}, {});
      EXPECT_EQ(reducer.status().code(), StatusCode::kInvalidArgument) << codec;
      EXPECT_NE(reducer.status().message().find("sparse"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace elastiquant
