#include "elastiquant/layers/run_codecs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

CodecsBySpec Asked() {
  return {{"levels", MakeCodec("alq:bits=3").value()},
          {"warm-up", MakeCodec("dgc:ratio=0.01,warmup=0.5/0.1").value()},
          {"exact", MakeCodec("fp32").value()}};
}

std::vector<float> Gradient(int rank) {
  std::vector<float> gradient(4096);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const auto x = static_cast<float>((i * 7919 + 31) % 997) / 997;
    gradient[i] = (i % 2 == 0 ? 1.0f : -1.0f) * x * x * x * static_cast<float>(rank + 1);
  }
  return gradient;
}

TEST(RunCodecs, SendMoreInTheFirstEpochs) {
  RunWorld(WorldOptions(1), [](Communicator& comm) {
    RunCodecs codecs(Asked(), &comm, 0);
    EXPECT_THAT(codecs.Now().at("warm-up")->spec(), HasSubstr("ratio=0.5,"));
    EXPECT_TRUE(codecs.SetEpoch(1));
    EXPECT_THAT(codecs.Now().at("warm-up")->spec(), HasSubstr("ratio=0.1,"));
    EXPECT_TRUE(codecs.SetEpoch(2));
    EXPECT_EQ(codecs.Now().at("warm-up"), codecs.asked().at("warm-up"));
    EXPECT_FALSE(codecs.SetEpoch(3)) << "all later epochs are alike";
    EXPECT_EQ(codecs.epoch(), 3);
    EXPECT_EQ(codecs.Now(), codecs.asked());
  });
}

TEST(RunCodecs, FitLevelsToTheGradientOfWorker0) {
  std::vector<std::map<std::string, std::string>> fitted(3);
  RunWorld(WorldOptions(3), [&](Communicator& comm) {
    RunCodecs codecs(Asked(), &comm, /*adapt_every=*/2);
    const std::string before = codecs.Now().at("levels")->spec();
    const std::vector<float> gradient = Gradient(comm.rank());
    EXPECT_FALSE(codecs.AdaptsAfter(1));
    codecs.Capture("levels", 1, gradient);
    EXPECT_FALSE(codecs.Adapt(1).value());
    EXPECT_EQ(codecs.Now().at("levels")->spec(), before);

    EXPECT_TRUE(codecs.AdaptsAfter(2));
    codecs.Capture("levels", 2, gradient);
    codecs.Capture("exact", 2, gradient);  // has no levels
    EXPECT_TRUE(codecs.Adapt(2).value());
    EXPECT_NE(codecs.Now().at("levels")->spec(), before);
    EXPECT_EQ(codecs.asked().at("levels")->spec(), before);
    fitted[static_cast<size_t>(comm.rank())] = codecs.Fitted();

    RunCodecs resumed(Asked(), &comm, 2);
    ASSERT_TRUE(resumed.UseFitted(codecs.Fitted()).ok());
    EXPECT_EQ(resumed.Now().at("levels")->spec(), codecs.Now().at("levels")->spec());
  });
  EXPECT_EQ(fitted[0].size(), 1u) << "only alq's levels are fitted";
  EXPECT_EQ(fitted[1], fitted[0]);
  EXPECT_EQ(fitted[2], fitted[0]);
}

TEST(RunCodecs, AStateOfOtherCodecsIsRefused) {
  RunWorld(WorldOptions(1), [](Communicator& comm) {
    RunCodecs codecs(Asked(), &comm, 0);
    EXPECT_THAT(codecs.UseFitted({}).message(), HasSubstr("'levels' are missing"));
    const Status bad = codecs.UseFitted({{"levels", "alq:bits=99"}});
    EXPECT_EQ(bad.code(), StatusCode::kCorruptData);
    EXPECT_THAT(bad.message(), HasSubstr("99"));
    EXPECT_EQ(codecs.Now().at("levels"), codecs.asked().at("levels"));
  });
}

}  // namespace
}  // namespace elastiquant
