#include "elastiquant/exchange/exchange_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "elastiquant/exchange/reducer_testing.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;

std::string Choose(const std::string& codec, const std::string& asked, int world,
                   const std::string& down = "") {
  const auto choice = ChooseExchange(
      MakeCodec(codec).value(), down.empty() ? nullptr : MakeCodec(down).value(), asked, world);
  return choice.ok() ? choice->Describe() : choice.status().message();
}

TEST(ExchangeChoice, FollowsTheNumberOfWorkersAndTheCodec) {
  // Two workers: whatever would go twice over the wire, unless nothing is lost on it.
  for (const char* codec : {"elastic:bits=4", "dither:bits=8", "eden:bits=1", "efsign|ef"}) {
    EXPECT_EQ(Choose(codec, "auto", 2), "all-gather") << codec;
  }
  EXPECT_EQ(Choose("fp32", "auto", 2), "two-phase");
  EXPECT_EQ(Choose("signsgd", "auto", 2), "two-phase");  // a majority vote
  // Three: at low rates that can be chosen.
  EXPECT_EQ(Choose("dither:bits=0.75", "auto", 3), "all-gather of dither:bits=0.5");
  for (const char* codec : {"dither:bits=2", "dither:bits=0.5", "dither:nmse=0.1", "eden"}) {
    EXPECT_EQ(Choose(codec, "auto", 3), "two-phase") << codec;
  }
  for (const int world : {1, 4, 16}) {
    EXPECT_EQ(Choose("dither:bits=1", "auto", world), "two-phase") << world;
  }
}

TEST(ExchangeChoice, LeavesCodecsWithAWayOfTheirOwnToIt) {
  for (const char* codec : {"topk", "terngrad", "powersgd:rank=2|ef", "dgc:ratio=0.01"}) {
    const auto made = MakeCodec(codec).value();
    EXPECT_EQ(Choose(codec, "auto", 2), ExchangeName(made->exchange())) << codec;
    EXPECT_EQ(Choose(codec, "codec", 2), ExchangeName(made->exchange())) << codec;
  }
}

TEST(ExchangeChoice, IsWhatWasAskedFor) {
  EXPECT_EQ(Choose("elastic:bits=4", "codec", 2), "two-phase");
  EXPECT_EQ(Choose("elastic:bits=4", "two-phase", 2), "two-phase");
  EXPECT_EQ(Choose("elastic:bits=4", "all-gather", 8), "all-gather");
  EXPECT_EQ(Choose("topk", "sparse-scatter", 8), "sparse-scatter");
  EXPECT_EQ(Choose("dither:bits=1.5", "auto", 2, "dither:bits=2.5"),
            "two-phase, back as dither:bits=2.5");
}

TEST(ExchangeChoice, RefusesWhatACodecCannotGoBy) {
  EXPECT_THAT(Choose("fp32", "ring", 4), HasSubstr("auto, codec, two-phase, all-gather"));
  EXPECT_THAT(Choose("elastic:bits=4", "integer-sum", 4), HasSubstr("terngrad"));
  EXPECT_THAT(Choose("elastic:bits=4", "sparse-scatter", 4), HasSubstr("sparse codecs"));
  EXPECT_THAT(Choose("dgc:ratio=0.01", "two-phase", 4), HasSubstr("velocities"));
  EXPECT_THAT(Choose("powersgd:rank=2", "two-phase", 4), HasSubstr("needs whole"));
  EXPECT_THAT(Choose("elastic:bits=4", "all-gather", 4, "fp16"), HasSubstr("two phases"));
  EXPECT_THAT(
      Choose("elastic:bits=4", "auto", 4, "topk"),
      HasSubstr("exact' cannot be that of means on their way back, which is the second of "
                "two phases: it goes by "));
  EXPECT_THAT(Choose("efsign|ef", "auto", 4, "fp16"), HasSubstr("remembers other vectors"));
}

// Gradients of workers that see similar data: most of each is common to all.
float Similar(int rank, size_t i, uint64_t step) {
  return Rough(100, 0, i, step) + 0.1f * Rough(rank, 0, i, step);
}

// The NMSE of the mean of similar gradients over some steps, and the bytes that worker 0 sends
// in one. Replicas must have the same bits.
struct Mean {
  double nmse = 0;
  uint64_t bytes = 0;
};

Mean MeanOf(int world, const std::string& codec, const std::string& asked,
            const std::string& down = "") {
  constexpr size_t kElements = 1 << 16;
  constexpr uint64_t kSteps = 4;
  Mean mean;
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    auto choice = ChooseExchange(MakeCodec(codec).value(),
                                 down.empty() ? nullptr : MakeCodec(down).value(), asked, world)
                      .value();
    std::vector<float> gradient(kElements);
    std::vector<GradientBucket> buckets;
    buckets.push_back({.gradient = gradient,
                       .codec = choice.codec,
                       .name = "layer",
                       .exchange = choice.exchange,
                       .down = choice.down});
    auto reducer = GradientReducer::Create(&comm, std::move(buckets), {.seed = 5}).value();
    double error = 0, norm = 0;
    for (uint64_t step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < kElements; ++i) gradient[i] = Similar(comm.rank(), i, step);
      ASSERT_TRUE(reducer->BeginStep(step).ok());
      ASSERT_TRUE(reducer->MarkReady(0).ok());
      const auto outcome = reducer->Finish();
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      uint64_t hash = 0;
      for (size_t i = 0; i < kElements; ++i) {
        double exact = 0;
        for (int r = 0; r < world; ++r) exact += static_cast<double>(Similar(r, i, step));
        exact /= world;
        error += (gradient[i] - exact) * (gradient[i] - exact);
        norm += exact * exact;
        hash = Mix64(hash ^ std::bit_cast<uint32_t>(gradient[i]));
      }
      const auto all = comm.AllGather(hash);
      ASSERT_TRUE(all.ok());
      for (const uint64_t theirs : *all) ASSERT_EQ(theirs, hash) << "step " << step;
    }
    if (comm.rank() == 0) mean = {error / norm, comm.traffic().bytes_up / kSteps};
  });
  return mean;
}

// Of two messages with error V each, the mean has V / 2. By two phases an owner's own part has
// none, so that the sum's share is V / 4, and the mean's own V comes on top: 2.5 times as much.
TEST(ExchangeChoice, TwoWorkersLoseTwoFifthsForTheSameBytes) {
  for (const char* codec : {"dither:bits=2", "elastic:bits=4"}) {
    const Mean twice = MeanOf(2, codec, "two-phase"), once = MeanOf(2, codec, "auto");
    EXPECT_NEAR(static_cast<double>(once.bytes), static_cast<double>(twice.bytes),
                .01 * static_cast<double>(twice.bytes))
        << codec;
    EXPECT_NEAR(once.nmse, .4 * twice.nmse, .08 * twice.nmse) << codec;
  }
}

TEST(ExchangeChoice, ThreeWorkersLoseLessForTheSameBytes) {
  const Mean twice = MeanOf(3, "dither:bits=1", "two-phase");
  const Mean once = MeanOf(3, "dither:bits=1", "auto");
  EXPECT_NEAR(static_cast<double>(once.bytes), static_cast<double>(twice.bytes),
              .03 * static_cast<double>(twice.bytes));
  EXPECT_LT(once.nmse, .9 * twice.nmse);
}

// Where the workers' gradients are alike.
TEST(ExchangeChoice, MoreBitsOnTheWayBackLoseLessForTheSameBytes) {
  const Mean same = MeanOf(8, "dither:bits=2", "auto");
  const Mean split = MeanOf(8, "dither:bits=1.25", "auto", "dither:bits=2.75");
  EXPECT_NEAR(static_cast<double>(split.bytes), static_cast<double>(same.bytes),
              .03 * static_cast<double>(same.bytes));
  EXPECT_LT(split.nmse, .9 * same.nmse);
}

// Also where both ways remember.
TEST(ExchangeChoice, MeansUnderACodecOfTheirOwnAreWhatTheyDecodeTo) {
  const Mean rough = MeanOf(4, "elastic:bits=2|ef", "two-phase");
  const Mean fine = MeanOf(4, "elastic:bits=2|ef", "two-phase", "elastic:bits=8|ef");
  EXPECT_LT(fine.nmse, rough.nmse);
  EXPECT_GT(fine.bytes, rough.bytes);
}

}  // namespace
}  // namespace elastiquant
