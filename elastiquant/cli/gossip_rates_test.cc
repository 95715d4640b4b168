#include "elastiquant/cli/gossip_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace elastiquant::cli {
namespace {

using nlohmann::ordered_json;

TEST(GossipRatesTest, AlgorithmsRunAsTheirRecursionsSay) {
  for (const char* graph : {"ring:lazy=1", "torus:rows=2,lazy=1", "complete"}) {
    for (const double curvature : {.05, .3}) {
      const auto rates =
          GossipRates({.graph = graph, .nodes = 8, .curvature = curvature}).value();
      ASSERT_EQ(rates["rows"].size(), 5u);
      for (const ordered_json& row : rates["rows"]) {
        SCOPED_TRACE(std::string(graph) + ": " + row.dump());
        ASSERT_FALSE(row.contains("refused"));
        const double rate = row["rate"];
        if (rate < .3) continue;  // over before anything can be measured
        ASSERT_FALSE(row["measured_rate"].is_null());
        EXPECT_NEAR(row["measured_rate"].get<double>(), rate, .04);
        EXPECT_NEAR(row["measured_left"].get<double>(), row["left"].get<double>(),
                    .03 * row["left"].get<double>() + 1e-5);
      }
    }
  }
}

TEST(GossipRatesTest, AFineCodecChangesLittleAndDSquaredIsRefusedWhereItDiverges) {
  const auto rates =
      GossipRates({.graph = "ring", .nodes = 8, .codec = "dither:bits=8"}).value();
  for (const ordered_json& row : rates["rows"]) {
    if (row["algorithm"] == "d2") {
      EXPECT_THAT(row["refused"].get<std::string>(), testing::HasSubstr("lazy=1"));
      continue;
    }
    if (row["algorithm"] == "choco") {
      EXPECT_NEAR(row["codec_rate"].get<double>(), row["rate"].get<double>(), .03);
    }
  }
}

TEST(GossipRatesTest, IsForSymmetricGraphsThatStay) {
  for (const char* graph : {"exponential", "one-peer-exponential", "random-pairs"}) {
    const auto rates = GossipRates({.graph = graph});
    ASSERT_FALSE(rates.ok());
    EXPECT_THAT(rates.status().message(), testing::HasSubstr("symmetric graphs"));
  }
}

}  // namespace
}  // namespace elastiquant::cli
