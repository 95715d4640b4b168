// Workers that differ: in the codecs they send under, and in how much they count for.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "elastiquant/exchange/reducer_testing.h"

namespace elastiquant {
namespace {

using Codecs = std::vector<std::shared_ptr<const Codec>>;

Codecs MakeAll(const std::vector<std::string>& specs) {
  Codecs codecs;
  for (const std::string& spec : specs) codecs.push_back(MakeCodec(spec).value());
  return codecs;
}

struct Ladder {
  const char* name;
  std::vector<std::string> specs;
  std::optional<Exchange> exchange;
};

class Ladders : public testing::TestWithParam<Ladder> {};
INSTANTIATE_TEST_SUITE_P(
    All, Ladders,
    testing::Values(
        Ladder{"TwoPhase",
               {"fp32", "elastic:bits=8", "dither:bits=2", "elastic:bits=3"},
               Exchange::kTwoPhase},
        Ladder{"AllGather", {"dither:bits=4", "dither:bits=1", "bf16"}, Exchange::kAllGather},
        Ladder{"Sparse", {"topk:ratio=0.2|ef", "topk:ratio=0.01|ef"}, std::nullopt},
        Ladder{"SparseScatter",
               {"topk:ratio=0.2|ef", "topk:ratio=0.01|ef"},
               Exchange::kSparseScatter}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Each worker takes another codec in every step, without a word to the others.
TEST_P(Ladders, WorkersThatDifferInEveryStepEndWithTheSameBits) {
  constexpr int kWorld = 4;
  constexpr size_t kLength = 20011;
  const Ladder& ladder = GetParam();
  std::vector<std::vector<float>> means(kWorld);
  RunWorld(WorldOptions(kWorld), [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    const Codecs codecs = MakeAll(ladder.specs);
    std::vector<float> gradient(kLength);
    GradientBucket bucket{gradient, codecs[rank % codecs.size()], "layer", ladder.exchange};
    bucket.ladder = codecs;
    auto reducer = GradientReducer::Create(&comm, {bucket}, {.seed = 5}).value();
    for (uint64_t step = 0; step < 6; ++step) {
      const auto& codec = codecs[(rank + step) % codecs.size()];
      ASSERT_TRUE(reducer->SetCodec(0, codec).ok());
      double exact = 0, sent = 0;
      for (size_t i = 0; i < kLength; ++i) {
        gradient[i] = Rough(comm.rank(), 0, i, step);
        double mean = 0;
        for (int r = 0; r < kWorld; ++r) mean += static_cast<double>(Rough(r, 0, i, step));
        exact += mean * mean / (kWorld * kWorld);
      }
      ASSERT_TRUE(reducer->BeginStep(step).ok());
      ASSERT_TRUE(reducer->MarkReady(0).ok());
      const auto outcome = reducer->Finish();
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      EXPECT_FALSE(outcome->skipped) << outcome->reason;
      for (const float v : gradient) sent += static_cast<double>(v) * static_cast<double>(v);
      EXPECT_GT(sent, 0.02 * exact);
    }
    means[rank] = gradient;
  });
  for (int r = 1; r < kWorld; ++r) EXPECT_EQ(means[static_cast<size_t>(r)], means[0]);
}

// Codecs that the ladder does not name, but that need no more room: each worker's own.
TEST(Ladder, TakesWhatFitsBesideItsCodecs) {
  struct Case {
    std::vector<std::string> ladder;
    std::string front, back;
  };
  for (const Case& c :
       {Case{{"dither:bits=2"}, "dither:bits=", ""},
        Case{{"topk:ratio=0.1|ef", "threshold:value=1|ef"}, "threshold:value=0.", "|ef"}}) {
    std::vector<std::vector<float>> means(3);
    RunWorld(WorldOptions(3), [&](Communicator& comm) {
      const auto rank = static_cast<size_t>(comm.rank());
      std::vector<float> gradient(20011);
      GradientBucket bucket{gradient, MakeCodec(c.ladder[0]).value(), "layer"};
      bucket.ladder = MakeAll(c.ladder);
      auto reducer = GradientReducer::Create(&comm, {bucket}, {.seed = 5}).value();
      for (uint64_t step = 0; step < 4; ++step) {
        const std::string spec = c.front + std::to_string(1 + rank + step) + c.back;
        ASSERT_TRUE(reducer->SetCodec(0, MakeCodec(spec).value()).ok()) << spec;
        for (size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] = Rough(comm.rank(), 0, i, step);
        }
        ASSERT_TRUE(reducer->BeginStep(step).ok());
        ASSERT_TRUE(reducer->MarkReady(0).ok());
        const auto outcome = reducer->Finish();
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        EXPECT_FALSE(outcome->skipped) << outcome->reason;
      }
      means[rank] = gradient;
    });
    EXPECT_EQ(means[1], means[0]);
    EXPECT_EQ(means[2], means[0]);
  }
}

TEST(Ladder, RefusesWhatCannotStandBesideTheOthers) {
  auto comm = Communicator::Connect({}).value();
  std::vector<float> gradient(100);
  const auto create = [&](const std::string& codec, const std::string& other) {
    GradientBucket bucket{gradient, MakeCodec(codec).value(), "layer"};
    bucket.ladder = MakeAll({other});
    return GradientReducer::Create(comm.get(), {bucket}, {}).status();
  };
  EXPECT_TRUE(create("elastic:bits=4", "dither:bits=1").ok());
  EXPECT_EQ(create("elastic:bits=4", "topk").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(create("elastic:bits=4", "elastic:bits=4|ef").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(create("terngrad", "terngrad").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(create("powersgd", "powersgd:rank=4").code(), StatusCode::kInvalidArgument);
}

// What all agree on makes room anew, and the ladder must still find its own.
TEST(Ladder, KeepsItsRoomWhenAllLeaveIt) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    std::vector<float> gradient(5000);
    GradientBucket bucket{gradient, MakeCodec("dither:bits=1").value(), "layer"};
    bucket.ladder = MakeAll({"dither:bits=2"});
    auto reducer = GradientReducer::Create(&comm, {bucket}, {}).value();
    // All of them take fp32, and then one goes back to where it came from.
    ASSERT_TRUE(reducer->SetCodec(0, MakeCodec("fp32").value()).ok());
    if (comm.rank() == 0) {
      ASSERT_TRUE(reducer->SetCodec(0, MakeCodec("dither:bits=1").value()).ok());
    }
    for (uint64_t step = 0; step < 2; ++step) {
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = Rough(comm.rank(), 0, i, step);
      ASSERT_TRUE(reducer->BeginStep(step).ok());
      ASSERT_TRUE(reducer->MarkReady(0).ok());
      const auto outcome = reducer->Finish();
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    }
  });
}

struct Weighted {
  const char* name;
  const char* codec;
  std::optional<Exchange> exchange;
};
class Weights : public testing::TestWithParam<Weighted> {};
INSTANTIATE_TEST_SUITE_P(All, Weights,
                         testing::Values(Weighted{"TwoPhase", "fp32", Exchange::kTwoPhase},
                                         Weighted{"AllGather", "fp32", Exchange::kAllGather},
                                         Weighted{"Sparse", "topk:ratio=1,bits=32",
                                                  std::nullopt},
                                         Weighted{"SparseScatter", "topk:ratio=1,bits=32",
                                                  Exchange::kSparseScatter}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Weights and values are such that floats hold every sum exactly.
TEST_P(Weights, TheMeanIsExactlyTheWeightedOne) {
  const Weighted& c = GetParam();
  const std::vector<double> weights = {6, 1, 0, 1};
  RunWorld(WorldOptions(4), [&](Communicator& comm) {
    const auto value = [](int rank, size_t i) {
      return static_cast<float>(static_cast<int>(i % 101) - 50 + 8 * rank);
    };
    Worker worker(&comm, c.codec, {1, 3, 5000}, c.exchange, {.weights = weights});
    for (uint64_t step = 0; step < 3; ++step) {
      for (auto& gradient : worker.gradients) {
        for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = value(comm.rank(), i);
      }
      ASSERT_FALSE(worker.Step(step).skipped);
      for (const auto& gradient : worker.gradients) {
        for (size_t i = 0; i < gradient.size(); ++i) {
          const float mean = (6 * value(0, i) + value(1, i) + value(3, i)) / 8;
          ASSERT_EQ(gradient[i], mean) << i;
        }
      }
    }
  });
}

// Shares of data that differ by three orders of magnitude, as they may lie on devices. Codecs
// lose something, which must not depend on who is large.
TEST(WeightsTest, HoldForManyWorkersUnderCompression) {
  constexpr int kWorld = 32;
  std::vector<double> weights;
  double all = 0;
  for (int r = 0; r < kWorld; ++r) all += weights.emplace_back(1 + 31 * (r % 32) * (r % 32));
  for (const char* codec : {"fp32", "elastic:bits=8", "topk:ratio=0.5|ef"}) {
    std::vector<Vectors> means(kWorld);
    RunWorld(WorldOptions(kWorld), [&](Communicator& comm) {
      Worker worker(&comm, codec, {1, 7, 20000}, std::nullopt, {.weights = weights});
      worker.Fill(0);
      ASSERT_FALSE(worker.Step(0).skipped);
      means[static_cast<size_t>(comm.rank())] = worker.gradients;
    });
    double error = 0, norm = 0;
    for (size_t b = 0; b < means[0].size(); ++b) {
      for (size_t i = 0; i < means[0][b].size(); ++i) {
        double mean = 0;
        for (int r = 0; r < kWorld; ++r) {
          mean +=
              weights[static_cast<size_t>(r)] / all * static_cast<double>(Rough(r, b, i, 0));
        }
        const double lost = static_cast<double>(means[0][b][i]) - mean;
        error += lost * lost;
        norm += mean * mean;
      }
    }
    EXPECT_LT(error, (codec == std::string("fp32") ? 1e-10 : .1) * norm) << codec;
    for (const Vectors& other : means) EXPECT_EQ(other, means[0]) << codec;
  }
}

TEST(WeightsTest, HoldForFactorsToo) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    // A matrix of rank 1, the same on both but for its sign: 3/4 of it less 1/4 is half of it.
    std::vector<float> gradient(20 * 30);
    const auto codec = MakeCodec("powersgd:rank=1").value();
    const std::vector<TensorShape> shapes = {{20, 30}};
    const auto shaped = CodecForShapes(codec, shapes).value();
    auto reducer =
        GradientReducer::Create(&comm, {{gradient, shaped, "layer"}}, {.weights = {3, 1}})
            .value();
    const float sign = comm.rank() == 0 ? 1.0f : -1.0f;
    const auto entry = [](size_t i) {
      return static_cast<float>((i / 30 + 1) * (i % 30 + 1)) / 64;
    };
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = sign * entry(i);
    ASSERT_TRUE(reducer->BeginStep(0).ok());
    ASSERT_TRUE(reducer->MarkReady(0).ok());
    ASSERT_TRUE(reducer->Finish().ok());
    for (size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_NEAR(gradient[i], entry(i) / 2, 1e-4f * entry(i));
    }
  });
}

TEST(WeightsTest, AreCheckedAndAgreed) {
  auto comm = Communicator::Connect({}).value();
  std::vector<float> gradient(100);
  const auto create = [&](const std::string& codec, std::vector<double> weights) {
    return GradientReducer::Create(comm.get(), {{gradient, MakeCodec(codec).value(), "layer"}},
                                   {.weights = std::move(weights)})
        .status();
  };
  EXPECT_TRUE(create("fp32", {7}).ok());
  EXPECT_NE(create("fp32", {1, 1}).message().find("2 weights for 1 workers"),
            std::string::npos);
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(create("fp32", {bad}).code(), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_NE(create("terngrad", {1}).message().find("integer sums"), std::string::npos);
  RunWorld(WorldOptions(2), [](Communicator& pair) {
    std::vector<float> mine(10);
    const auto status =
        GradientReducer::Create(&pair, {{mine, MakeCodec("fp32").value(), "layer"}},
                                {.weights = {1, pair.rank() == 0 ? 2.0 : 3.0}})
            .status();
    EXPECT_NE(status.message().find("weights"), std::string::npos) << status.ToString();
  });
}

}  // namespace
}  // namespace elastiquant
