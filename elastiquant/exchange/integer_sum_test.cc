// Codes under shared scales, added up as integers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "elastiquant/codec/bucket/shared_scale.h"
#include "elastiquant/exchange/chunk.h"
#include "elastiquant/exchange/reducer_testing.h"

namespace elastiquant {
namespace {

// Around the widths of chunks (512 for long ones) and of the codec's buckets.
const Lengths kLengths{0, 1, 3, 99, 100, 101, 2047, 2048, 2049, 20011, 4 * 16 * 512 + 1};

// All gradients, by rank and bucket, after each of some steps.
std::vector<Vectors> RunSteps(int world, const std::string& codec, const Lengths& lengths) {
  std::vector<Vectors> seen(static_cast<size_t>(world));
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    Worker worker(&comm, codec, lengths, Exchange::kIntegerSum, {.seed = 5});
    for (uint64_t step = 0; step < 3; ++step) {
      worker.Fill(step);
      EXPECT_FALSE(worker.Step(step).skipped);
      for (const auto& g : worker.gradients) {
        seen[static_cast<size_t>(comm.rank())].push_back(g);
      }
    }
  });
  return seen;
}

// What the workers' gradients of a bucket become, one after the other in plain code.
std::vector<float> PlainMean(int world, const Codec& codec, size_t bucket, size_t n,
                             uint64_t step, uint64_t seed) {
  const SharedScale& codes = *codec.shared_scale();
  std::vector<float> mean(n);
  Workspace work;
  for (int j = 0; j < world; ++j) {
    const Chunk chunk = ChunkOf(n, world, j);
    Vectors parts, own;
    std::vector<float> shared(codes.ScaleCount(chunk.size));
    for (int r = 0; r < world; ++r) {
      parts.emplace_back(chunk.size);
      for (size_t i = 0; i < chunk.size; ++i) {
        parts.back()[i] = Rough(r, bucket, chunk.begin + i, step);
      }
      own.emplace_back(shared.size());
      EXPECT_TRUE(codes.Measure(parts.back(), work, own.back()).ok());
      for (size_t s = 0; s < shared.size(); ++s) {
        shared[s] = std::max(shared[s], own.back()[s]);
      }
    }
    std::vector<double> sum(chunk.size);
    for (int r = 0; r < world; ++r) {
      const auto w = static_cast<size_t>(r);
      const uint64_t message =
          2 * bucket * static_cast<uint64_t>(world) + static_cast<uint64_t>(j);
      std::vector<uint8_t> frame(codec.MaxFrameBytes(chunk.size));
      frame.resize(
          codes.Encode(parts[w], own[w], shared, DeriveKey(seed, step, w, message), work, frame)
              .value());
      std::vector<float> decoded(chunk.size);
      EXPECT_TRUE(DecodeFrame(frame, work, decoded).ok());
      for (size_t i = 0; i < chunk.size; ++i) sum[i] += decoded[i];
    }
    for (size_t i = 0; i < chunk.size; ++i) {
      mean[chunk.begin + i] = static_cast<float>(sum[i] / world);
    }
  }
  return mean;
}

class IntegerSumTest : public testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(
    All, IntegerSumTest,
    testing::Combine(testing::Values(1, 2, 3, 5),
                     testing::Values("terngrad", "terngrad:bucket=100|rans",
                                     "terngrad:clip=0,bucket=0", "terngrad:scale=0.5")));

TEST_P(IntegerSumTest, LeavesTheSumOfTheCodesOnAllReplicasInAllRuns) {
  const auto [world, spec] = GetParam();
  const auto codec = MakeCodec(spec).value();
  const std::vector<Vectors> seen = RunSteps(world, spec, kLengths);
  EXPECT_EQ(RunSteps(world, spec, kLengths), seen);
  for (const Vectors& of_rank : seen) ASSERT_EQ(of_rank, seen[0]);
  for (size_t k = 0; k < seen[0].size(); ++k) {
    const size_t bucket = k % kLengths.size();
    const std::vector<float> plain =
        PlainMean(world, *codec, bucket, kLengths[bucket], k / kLengths.size(), /*seed=*/5);
    for (size_t i = 0; i < plain.size(); ++i) {
      // scale * f32(sum / N) against f32(scale * sum / N).
      ASSERT_NEAR(seen[0][k][i], plain[i], std::abs(plain[i]) * 0x1p-22f) << k << " at " << i;
    }
  }
}

float NormalAt(StreamKey key, size_t i) {
  const LaneKeys keys = MakeLaneKeys(key);
  const auto at = static_cast<uint32_t>(2 * i);
  const float u = UniformFloat(RandomBits(keys, at)),
              v = UniformFloat(RandomBits(keys, at + 1));
  return std::sqrt(-2 * std::log(1 - u)) * std::cos(6.2831853f * v);
}

// Workers with a gradient in common and noise of their own.
void FillNormal(Worker& worker) {
  for (auto& g : worker.gradients) {
    for (size_t i = 0; i < g.size(); ++i) {
      g[i] = NormalAt({1}, i) + NormalAt({100 + static_cast<uint64_t>(worker.comm->rank())}, i);
    }
  }
}

// Of one worker, after averaging the same gradients many times.
struct Averages {
  std::vector<double> mean;  // of the results
  double nmse = 0;           // of each result against the true mean, on average
  double bytes = 0;          // sent a step
  double squared_error = 0, squared_norm = 0;  // of what was sent
};

Averages Average(int world, const std::string& codec, Exchange exchange, size_t n, int steps) {
  Averages averages;
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    std::vector<double> truth(n), sum(n);
    for (size_t i = 0; i < n; ++i) {
      truth[i] = NormalAt({1}, i);
      for (uint64_t r = 0; r < static_cast<uint64_t>(world); ++r) {
        truth[i] += static_cast<double>(NormalAt({100 + r}, i)) / world;
      }
    }
    Worker worker(&comm, codec, {n}, exchange, {.measure_every = 1});
    double error = 0, norm = 0;
    for (int step = 0; step < steps; ++step) {
      FillNormal(worker);
      EXPECT_FALSE(worker.Step(static_cast<uint64_t>(step)).skipped);
      for (size_t i = 0; i < n; ++i) {
        const double q = worker.gradients[0][i];
        sum[i] += q / steps;
        error += (q - truth[i]) * (q - truth[i]);
        norm += truth[i] * truth[i];
      }
    }
    if (comm.rank() != 0) return;
    const ReducerStats stats = worker.reducer->TakeStats();
    averages = {sum, error / norm, static_cast<double>(comm.traffic().bytes_up) / steps,
                stats.squared_error, stats.squared_norm};
    for (size_t i = 0; i < n; ++i) averages.mean[i] -= truth[i];
  });
  return averages;
}

TEST(IntegerSumMean, IsUnbiasedAndItsVarianceIsBelowThatOfTwoPhases) {
  constexpr size_t n = 3000;
  constexpr int kSteps = 200;
  for (const int world : {2, 4}) {
    const Averages sums = Average(world, "terngrad:clip=0", Exchange::kIntegerSum, n, kSteps);
    const Averages twice = Average(world, "terngrad:clip=0", Exchange::kTwoPhase, n, kSteps);
    // As large as chance makes the error of an average over the steps.
    double bias = 0, norm = 0;
    for (size_t i = 0; i < n; ++i) {
      bias += sums.mean[i] * sums.mean[i];
      norm += std::pow(NormalAt({1}, i), 2);
    }
    norm *= 1 + 1.0 / world;
    EXPECT_NEAR(bias / norm, sums.nmse / kSteps, .1 * sums.nmse / kSteps) << world;
    EXPECT_LT(sums.nmse, .6 * twice.nmse) << world;
    // The errors of N workers' frames are of one size and independent, and nothing is added.
    EXPECT_NEAR(sums.nmse, sums.squared_error / kSteps / world / n / (1 + 1.0 / world),
                .1 * sums.nmse)
        << world;
  }
}

TEST(IntegerSumMean, SendsScalesPartsAndSums) {
  constexpr size_t n = 4 * 16 * 512 * 2;
  constexpr int world = 4;
  const Averages fixed = Average(world, "terngrad", Exchange::kIntegerSum, n, 2);
  const Averages coded = Average(world, "terngrad|rans", Exchange::kIntegerSum, n, 2);
  const double chunk = n / world, scales = n / 2048.0;
  const double overhead = kMessageHeaderBytes + 32;
  // 1.6 bits a code; sums of four, alike as they are, take less than 2.8.
  const double most = 3 * (overhead + 4 * scales + overhead + 12 + chunk / 5 + 4 * scales / 4 +
                           overhead + 12 + .35 * chunk + 4 * scales / 4);
  EXPECT_LT(fixed.bytes, most);
  EXPECT_GT(fixed.bytes, .9 * most);
  EXPECT_LT(coded.bytes, .95 * fixed.bytes);
}

TEST(IntegerSumStep, ANanSkipsItOnAllForTheSameReason) {
  for (const int world : {1, 2, 4}) {
    RunWorld(WorldOptions(world), [world](Communicator& comm) {
      Worker worker(&comm, "terngrad", {9, 3000}, std::nullopt, {.measure_every = 1});
      for (uint64_t step = 0; step < 3; ++step) {
        worker.Fill(step);
        const bool spoil = step != 1;
        if (spoil && comm.rank() == world - 1) {
          worker.gradients[1][2900] = std::numeric_limits<float>::quiet_NaN();
          worker.gradients[1][step == 0 ? 123 : 2800] = std::numeric_limits<float>::infinity();
        }
        const StepOutcome outcome = worker.Step(step);
        EXPECT_EQ(outcome.skipped, spoil);
        if (!spoil) continue;
        EXPECT_EQ(outcome.reason, "worker " + std::to_string(world - 1) +
                                      ": infinity in bucket 1 (layer) at " +
                                      (step == 0 ? "123" : "2800"));
      }
    });
  }
}

TEST(IntegerSumStep, SumsBeyondFloatAreNotFormed) {
  RunWorld(WorldOptions(3), [](Communicator& comm) {
    Worker worker(&comm, "terngrad:clip=0", {600}, std::nullopt);
    constexpr float kMost = std::numeric_limits<float>::max();
    worker.gradients[0].assign(600, kMost);
    EXPECT_FALSE(worker.Step(0).skipped);
    EXPECT_EQ(worker.gradients[0], std::vector<float>(600, kMost));
  });
}

TEST(IntegerSumStep, TellsOfEachFrameOnceAndOfABoundThatHoldsOfAll) {
  constexpr size_t n = 5000;
  constexpr int world = 3;
  std::mutex mutex;
  double error = 0, bound = 0;
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    std::vector<int> times(n);
    const auto measured = [&](const MeasuredMessage& m) {
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < m.part.size; ++i) ++times[m.part.begin + i];
      double square = 0;
      for (const float x : m.input) square += static_cast<double>(x) * x;
      for (const float x : m.error) error += static_cast<double>(x) * x;
      bound += *m.codec->NmseBound(m.input.size()) * square;
      EXPECT_EQ(m.codec->spec(), "terngrad:clip=0,bucket=0");
      EXPECT_EQ(InspectFrame(m.frame).value().codec, "terngrad");
    };
    Worker worker(&comm, "terngrad:clip=0,bucket=0", {n}, std::nullopt,
                  {.measure_every = 1, .on_measured = measured});
    // What the bound of one worker alone would not allow: a scale that others need.
    worker.gradients[0].assign(n, comm.rank() == 0 ? 1.0f : 1e-4f);
    EXPECT_FALSE(worker.Step(0).skipped);
    EXPECT_EQ(times, std::vector<int>(n, 1));
    const ReducerStats stats = worker.reducer->TakeStats();
    const double own_bound = *MakeCodec("terngrad:clip=0")->get()->NmseBound(n / world + 1);
    if (comm.rank() > 0) {
      EXPECT_GT(stats.squared_error, own_bound * stats.squared_norm);
    }
  });
  EXPECT_LT(error, bound);
}

TEST(IntegerSumStep, ALostWorkerStopsTheOthers) {
  // The others wait for its scales.
  ExpectALostWorkerStopsTheOthers("terngrad", std::nullopt);
}

TEST(IntegerSumReducer, TakesBucketsThatGoOtherWaysBesideIt) {
  RunWorld(WorldOptions(3), [](Communicator& comm) {
    Vectors gradients(3, std::vector<float>(4000, static_cast<float>(comm.rank())));
    const std::vector<std::string> specs{"fp32", "terngrad:clip=0", "topk:ratio=1,bits=32"};
    std::vector<GradientBucket> buckets;
    for (size_t b = 0; b < specs.size(); ++b) {
      buckets.push_back({gradients[b], MakeCodec(specs[b]).value(), specs[b]});
    }
    std::vector<size_t> reduced;
    const auto on_reduced = [&](size_t b, bool is_mean) {
      EXPECT_TRUE(is_mean);
      reduced.push_back(b);
    };
    auto reducer = GradientReducer::Create(&comm, buckets, {.on_reduced = on_reduced}).value();
    ASSERT_TRUE(reducer->BeginStep(0).ok());
    for (const size_t b : {2, 0, 1}) ASSERT_TRUE(reducer->MarkReady(b).ok());
    const auto outcome = reducer->Finish();
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    EXPECT_EQ(reduced, (std::vector<size_t>{0, 1, 2}));
    EXPECT_EQ(gradients[0], std::vector<float>(4000, 1));
    EXPECT_EQ(gradients[2], std::vector<float>(4000, 1));
    for (const float q : gradients[1]) {
      // Worker 2 sends its scale of 2, worker 1 half of the time.
      ASSERT_TRUE(q == 2 * (1.0f / 3) || q == 2 * (2.0f / 3)) << q;
    }
  });
}

TEST(IntegerSumReducer, FollowsACodecThatChangesAndRefusesOthers) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    Worker worker(&comm, "terngrad", {3000}, std::nullopt);
    worker.Fill(0);
    EXPECT_FALSE(worker.Step(0).skipped);
    ASSERT_TRUE(worker.reducer->SetCodec(0, MakeCodec("terngrad:bucket=70|rans").value()).ok());
    worker.Fill(1);
    EXPECT_FALSE(worker.Step(1).skipped);
    EXPECT_FALSE(worker.reducer->SetCodec(0, MakeCodec("elastic").value()).ok());
    std::vector<float> gradient(100);
    for (const char* spec : {"elastic", "terngrad|ef", "terngrad|rotate"}) {
      const auto reducer = GradientReducer::Create(
          &comm, {{gradient, MakeCodec(spec).value(), "layer", Exchange::kIntegerSum}}, {});
      EXPECT_EQ(reducer.status().code(), StatusCode::kInvalidArgument) << spec;
      EXPECT_NE(reducer.status().message().find("integer sums"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace elastiquant
