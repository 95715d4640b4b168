#include "elastiquant/ddp/fragment_engine.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/ddp/engine_testing.h"
#include "elastiquant/net/memory/memory_network.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

// Two fragments: the first one of a matrix and, beside it, three scalars; the second one of a
// vector, which stays exact, and a matrix.
const std::vector<ParameterShape> kRoundShapes{
    {"in.weight", 3000, 2, 60}, {"in.bias", 60, 1}, {"out.weight", 2400, 2, 40}};
const std::vector<size_t> kFragmentOf{0, 1, 1};
constexpr size_t kRoundScalars = 3;

using Tensors = std::vector<at::Tensor>;

std::unique_ptr<FragmentEngine> MakeRounds(CommunicatorOptions options, int rank,
                                           const std::string& codec,
                                           FragmentEngine::End end = nullptr) {
  options.rank = rank;
  FragmentOptions fragments;
  fragments.fragments = kFragmentOf;
  fragments.codec = codec;
  fragments.scalars = kRoundScalars;
  fragments.reducer.measure_every = 1;
  return FragmentEngine::Create(options, /*goes_on=*/false, kRoundShapes, std::move(fragments),
                                std::move(end))
      .value();
}

std::vector<size_t> TensorSizes(size_t fragment) {
  std::vector<size_t> sizes;
  for (size_t p = 0; p < kRoundShapes.size(); ++p) {
    if (kFragmentOf[p] == fragment) sizes.push_back(kRoundShapes[p].elements);
  }
  if (fragment == 0) sizes.push_back(kRoundScalars);
  return sizes;
}

// What a worker has to say in a round, other values for each fragment.
Tensors Deltas(int rank, int round, size_t fragment) {
  Tensors tensors;
  for (const size_t size : TensorSizes(fragment)) {
    std::vector<float> values;
    for (size_t i = 0; i < size; ++i) values.push_back(Gradient(rank, round, fragment, i));
    tensors.push_back(at::tensor(values));
  }
  return tensors;
}

Tensors MeanOfDeltas(int world, int round, size_t fragment) {
  Tensors sum = Deltas(0, round, fragment);
  for (int r = 1; r < world; ++r) {
    const Tensors more = Deltas(r, round, fragment);
    for (size_t t = 0; t < sum.size(); ++t) sum[t].add_(more[t]);
  }
  for (at::Tensor& tensor : sum) tensor.div_(world);
  return sum;
}

Tensors EmptyMean(size_t fragment, float value = 0) {
  Tensors tensors;
  for (const size_t size : TensorSizes(fragment)) {
    tensors.push_back(at::full({static_cast<int64_t>(size)}, value));
  }
  return tensors;
}

// Begins and finishes an average; returns the mean.
Tensors Round(FragmentEngine& engine, int rank, int round, size_t fragment) {
  EXPECT_TRUE(
      engine.Begin(fragment, static_cast<uint64_t>(round), Deltas(rank, round, fragment)).ok());
  Tensors mean = EmptyMean(fragment);
  const Result<StepOutcome> outcome = engine.Finish(fragment, mean);
  EXPECT_TRUE(outcome.ok()) << outcome.status().message();
  EXPECT_FALSE(outcome.value().skipped);
  return mean;
}

void ExpectNear(const Tensors& found, const Tensors& expected, double most) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t t = 0; t < found.size(); ++t) {
    EXPECT_LE((found[t] - expected[t]).abs().max().item<double>(), most) << "tensor " << t;
  }
}

TEST(FragmentEngine, AveragesFragmentsThatTravelAtOnceInAnyOrder) {
  for (const int world : {1, 2, 3}) {
    const auto options = WorldOptions(world);
    RunRanks(world, [&](int rank) {
      const auto engine = MakeRounds(options, rank, "fp32");
      for (int round = 0; round < 3; ++round) {
        for (const size_t f : {size_t{0}, size_t{1}}) {
          ASSERT_TRUE(
              engine->Begin(f, static_cast<uint64_t>(round), Deltas(rank, round, f)).ok());
        }
        for (const size_t f : {size_t{1}, size_t{0}}) {
          Tensors mean = EmptyMean(f);
          ASSERT_TRUE(engine->Finish(f, mean).ok());
          ExpectNear(mean, MeanOfDeltas(world, round, f), 1e-6);
        }
      }
    });
  }
}

// Workers count for 1, 2 and 3. That in the middle dies after its first round.
TEST(FragmentEngine, ThoseThatAreLeftGoOnWithWhatTheyCountFor) {
  MemoryNetwork network;
  const auto store = network.At()->HostStore(0, Reach::kThisMachine).value();
  RunRanks(3, [&](int rank) {
    CommunicatorOptions options;
    options.rank = rank;
    options.world_size = 3;
    options.network = network.At(rank);
    options.store_port = store->port();
    options.store_is_external = true;
    options.connect_timeout = std::chrono::minutes(1);
    FragmentOptions fragments;
    fragments.fragments = kFragmentOf;
    fragments.codec = "fp32";
    fragments.scalars = kRoundScalars;
    fragments.reducer.weights = {1, 2, 3};
    const auto made = FragmentEngine::Create(options, /*goes_on=*/true, kRoundShapes,
                                             std::move(fragments), nullptr);
    ASSERT_TRUE(made.ok()) << made.status().message();
    FragmentEngine& engine = **made;
    const auto mean_of = [](std::vector<int> ranks, int round, size_t fragment) {
      Tensors mean = EmptyMean(fragment);
      double sum = 0;
      for (const int r : ranks) {
        const Tensors own = Deltas(r, round, fragment);
        for (size_t t = 0; t < mean.size(); ++t) mean[t].add_(own[t], 1 + r);
        sum += 1 + r;
      }
      for (at::Tensor& tensor : mean) tensor.div_(sum);
      return mean;
    };
    ExpectNear(Round(engine, rank, 0, 1), mean_of({0, 1, 2}, 0, 1), 1e-6);
    if (rank == 1) return network.Kill(1);
    for (int round = 1; round < 4; ++round) {
      for (const size_t f : {size_t{0}, size_t{1}}) {
        ExpectNear(Round(engine, rank, round, f), mean_of({0, 2}, round, f), 1e-6);
      }
    }
    EXPECT_EQ(engine.lost(), std::vector<int>{1});
    // Its name is what it was, though its rank is another one now.
    Tensors bad = Deltas(rank, 4, 0);
    if (rank == 2) bad[0].fill_(std::numeric_limits<float>::quiet_NaN());
    ASSERT_TRUE(engine.Begin(0, 4, bad).ok());
    const Result<StepOutcome> outcome = engine.Finish(0, bad);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->reason.rfind("worker 2: NaN", 0), 0u) << outcome->reason;
    const auto state = engine.SaveState();
    ASSERT_TRUE(state.ok());
    EXPECT_EQ(engine.LoadState(*state).code(), StatusCode::kCorruptData);
  });
}

TEST(FragmentEngine, CannotGoOnWithACodecThatAllMustRememberAlike) {
  FragmentOptions fragments;
  fragments.fragments = kFragmentOf;
  fragments.codec = "powersgd:rank=2";
  const auto made = FragmentEngine::Create(WorldOptions(1), /*goes_on=*/true, kRoundShapes,
                                           std::move(fragments), nullptr);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("alike on all workers"), std::string::npos);
}

TEST(FragmentEngine, TakesACopyOfWhatItIsGiven) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    const auto engine = MakeRounds(options, rank, "fp32");
    Tensors given = Deltas(rank, 0, 0);
    ASSERT_TRUE(engine->Begin(0, 0, given).ok());
    for (at::Tensor& tensor : given) tensor.fill_(1e9);  // training goes on
    Tensors mean = EmptyMean(0);
    ASSERT_TRUE(engine->Finish(0, mean).ok());
    ExpectNear(mean, MeanOfDeltas(2, 0, 0), 1e-6);
  });
}

// Biases and scalars are exact under any codec, and all workers have the same bits.
TEST(FragmentEngine, CompressesMatricesAlone) {
  const auto options = WorldOptions(3);
  std::vector<Tensors> means(3);
  RunRanks(3, [&](int rank) {
    const auto engine = MakeRounds(options, rank, "elastic:bits=8");
    const std::vector<std::string> specs = engine->specs();
    ASSERT_EQ(specs.size(), kRoundShapes.size());
    EXPECT_EQ(specs[0].substr(0, 14), "elastic:bits=8");
    EXPECT_EQ(specs[1], "fp32");
    Tensors mean = Round(*engine, rank, 0, 0);
    const Tensors other = Round(*engine, rank, 0, 1);
    mean.insert(mean.end(), other.begin(), other.end());
    Tensors expected = MeanOfDeltas(3, 0, 0);
    const Tensors more = MeanOfDeltas(3, 0, 1);
    expected.insert(expected.end(), more.begin(), more.end());
    ExpectNear(mean, expected, .05);
    ExpectNear({mean[1], mean[2]}, {expected[1], expected[2]}, 1e-6);
    EXPECT_GT((mean[0] - expected[0]).abs().max().item<double>(), 0);
    // A line for each compressed layer, and one of all.
    EXPECT_EQ(engine->Layers().size(), 3U);
    means[static_cast<size_t>(rank)] = mean;
  });
  for (size_t t = 0; t < means[0].size(); ++t) {
    EXPECT_TRUE(at::equal(means[0][t], means[1][t]) && at::equal(means[0][t], means[2][t]));
  }
}

TEST(FragmentEngine, RefusesTensorsOfOtherSizesAndGoesOn) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    const auto engine = MakeRounds(options, rank, "fp32");
    Tensors tensors = Deltas(rank, 0, 0);
    const at::Tensor scalars = tensors.back();
    tensors.pop_back();
    const Status fewer = engine->Begin(0, 0, tensors);
    EXPECT_EQ(fewer.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(fewer.message().find("has 2 tensors, not 1"), std::string::npos);
    tensors.push_back(at::cat({scalars, scalars}));
    const Status longer = engine->Begin(0, 0, tensors);
    EXPECT_EQ(longer.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(longer.message().find("another size"), std::string::npos);
    // Nothing was begun.
    ExpectNear(Round(*engine, rank, 0, 0), MeanOfDeltas(2, 0, 0), 1e-6);
  });
}

TEST(FragmentEngine, ARoundWithANanIsSkippedOnAllAndNamesTheWorker) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    const auto engine = MakeRounds(options, rank, "dither:bits=2");
    Tensors tensors = Deltas(rank, 0, 1);
    if (rank == 1) tensors[1][7] = std::numeric_limits<float>::quiet_NaN();
    ASSERT_TRUE(engine->Begin(1, 0, tensors).ok());
    Tensors mean = EmptyMean(1, 5);
    const Result<StepOutcome> outcome = engine->Finish(1, mean);
    ASSERT_TRUE(outcome.ok());
    EXPECT_TRUE(outcome.value().skipped);
    EXPECT_NE(outcome.value().reason.find("worker 1"), std::string::npos);
    EXPECT_NE(outcome.value().reason.find("out.weight"), std::string::npos);
    ExpectNear(mean, EmptyMean(1, 5), 0);  // left alone
    EXPECT_EQ(engine->stats().skipped, 1U);
    EXPECT_EQ(engine->stats().skip_reason, outcome.value().reason);
    (void)Round(*engine, rank, 1, 1);
    EXPECT_EQ(engine->stats().steps, 2U);
    EXPECT_EQ(engine->stats().skipped, 1U);
  });
}

TEST(FragmentEngine, CountsRoundsUntilItIsClosed) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    const auto engine = MakeRounds(options, rank, "fp32");
    (void)Round(*engine, rank, 0, 0);
    engine->ResetStats();
    EXPECT_EQ(engine->stats().steps, 0U);
    EXPECT_EQ(engine->stats().traffic.bytes_up, 0U);
    (void)Round(*engine, rank, 1, 1);
    const DdpStats before = engine->stats();
    EXPECT_EQ(before.steps, 1U);
    // Two workers all-gather, or scatter and gather: as many bytes as they have values.
    EXPECT_EQ(before.fp32_bytes_up, 4U * (60 + 2400));
    EXPECT_GE(before.traffic.bytes_up, before.fp32_bytes_up);
    engine->Close("has enough", {});
    EXPECT_EQ(engine->stats().steps, 1U);
    EXPECT_GE(engine->stats().traffic.bytes_up, before.traffic.bytes_up);
  });
}

TEST(FragmentEngine, GoesOnFromItsStateToTheBit) {
  const auto first = WorldOptions(2), second = WorldOptions(2), third = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    const auto engine = MakeRounds(first, rank, "elastic:bits=2|ef");
    (void)Round(*engine, rank, 0, 0);
    const Sections saved = engine->SaveState().value();
    const Tensors expected = Round(*engine, rank, 1, 0);
    const auto resumed = MakeRounds(second, rank, "elastic:bits=2|ef");
    ASSERT_TRUE(resumed->LoadState(saved).ok());
    const Tensors found = Round(*resumed, rank, 1, 0);
    for (size_t t = 0; t < found.size(); ++t) EXPECT_TRUE(at::equal(found[t], expected[t]));
    // A worker that remembers nothing sends something else.
    const auto forgetful = MakeRounds(third, rank, "elastic:bits=2|ef");
    EXPECT_FALSE(at::equal(Round(*forgetful, rank, 1, 0)[0], expected[0]));
  });
}

TEST(FragmentEngine, RefusesAStateThatIsNotItsOwnAndChangesNothing) {
  const auto options = WorldOptions(2), others = WorldOptions(2);
  std::vector<Sections> states(2);
  RunRanks(2, [&](int rank) {
    const auto engine = MakeRounds(options, rank, "elastic:bits=2|ef");
    (void)Round(*engine, rank, 0, 0);
    states[static_cast<size_t>(rank)] = engine->SaveState().value();
  });
  RunRanks(2, [&](int rank) {
    const auto engine = MakeRounds(others, rank, "elastic:bits=3|ef");
    const Sections before = engine->SaveState().value();
    const Status codec = engine->LoadState(states[static_cast<size_t>(rank)]);
    EXPECT_EQ(codec.code(), StatusCode::kCorruptData);
    EXPECT_NE(codec.message().find("in.weight"), std::string::npos) << codec.message();
    const Status worker = engine->LoadState(states[static_cast<size_t>(1 - rank)]);
    EXPECT_EQ(worker.code(), StatusCode::kCorruptData);
    EXPECT_NE(worker.message().find(std::to_string(1 - rank)), std::string::npos);
    const Status nobodys = engine->LoadState({});
    EXPECT_EQ(nobodys.code(), StatusCode::kCorruptData);
    EXPECT_NE(nobodys.message().find("identity is missing"), std::string::npos);
    EXPECT_EQ(engine->SaveState().value(), before);
  });
}

TEST(FragmentEngine, IsOfNoUseOnceItIsClosed) {
  const auto options = WorldOptions(2);
  std::vector<int> ended(2);
  RunRanks(2, [&](int rank) {
    const auto engine = MakeRounds(options, rank, "elastic:bits=2|ef",
                                   [&](std::unique_ptr<EnduringGroup> comm) {
                                     EXPECT_NE(comm, nullptr);
                                     ++ended[static_cast<size_t>(rank)];
                                   });
    (void)Round(*engine, rank, 0, 0);
    const Sections before = engine->SaveState().value();
    engine->Close("has enough", {});
    engine->Close("has enough", {});
    EXPECT_EQ(engine->SaveState().value(), before);  // as for a checkpoint after training
    for (const Status& status :
         {engine->Begin(0, 1, Deltas(rank, 1, 0)), engine->LoadState(before),
          engine->Finish(0, EmptyMean(0)).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("was closed"), std::string::npos);
    }
  });
  EXPECT_EQ(ended, std::vector<int>(2, 1));
}

TEST(FragmentEngine, WhoClosesWithinARoundEndsTheOthersAndIsNamed) {
  const auto options = WorldOptions(3);
  RunRanks(3, [&](int rank) {
    const auto engine = MakeRounds(options, rank, "fp32");
    if (rank == 1) {
      ASSERT_TRUE(engine->Begin(0, 0, Deltas(rank, 0, 0)).ok());
      engine->Close("dropped its model", {});
      return;
    }
    // How far the others come by then is chance: it may have sent its part of the first
    // fragment, but none of the second.
    Tensors mean = EmptyMean(0), other = EmptyMean(1);
    Status lost = engine->Begin(0, 0, Deltas(rank, 0, 0));
    if (lost.ok()) lost = engine->Begin(1, 0, Deltas(rank, 0, 1));
    if (lost.ok()) lost = engine->Finish(0, mean).status();
    if (lost.ok()) lost = engine->Finish(1, other).status();
    EXPECT_EQ(lost.code(), StatusCode::kUnavailable) << lost.message();
    EXPECT_NE(lost.message().find("worker 1"), std::string::npos) << lost.message();
    EXPECT_NE(lost.message().find("dropped its model"), std::string::npos) << lost.message();
  });
}

TEST(FragmentEngine, NeedsAParameter) {
  const auto engine = FragmentEngine::Create(WorldOptions(1), false, {}, {}, nullptr);
  EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace elastiquant
