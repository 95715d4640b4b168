#include "elastiquant/rates/gossip_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace elastiquant::rates {
namespace {

using nlohmann::ordered_json;

// What is measured in rows that are not refused, against what theory says. A mode that hardly
// any weights are in may be the slowest one and not be seen, so that a rate is at least as
// good.
void CheckRows(const ordered_json& rates, size_t refused) {
  ASSERT_EQ(rates["rows"].size(), 11u);
  size_t seen = 0;
  for (const ordered_json& row : rates["rows"]) {
    SCOPED_TRACE(rates["graph"].get<std::string>() + ": " + row.dump());
    if (row.contains("refused")) {
      ++seen;
      continue;
    }
    const double left = row["left"];
    EXPECT_NEAR(row["measured_left"].get<double>(), left, .03 * left + 1e-5);
    const double rate = row["rate"];
    if (rate < .3) continue;  // over before anything can be measured
    ASSERT_FALSE(row["measured_rate"].is_null());
    EXPECT_LT(row["measured_rate"].get<double>(), rate + .04);
  }
  EXPECT_EQ(seen, refused);
}

TEST(GossipRatesTest, AlgorithmsRunAsTheirRecursionsSay) {
  for (const char* graph : {"ring:lazy=1", "torus:rows=2,lazy=1", "complete"}) {
    for (const double curvature : {.05, .3}) {
      const auto rates =
          GossipRates({.graph = graph, .nodes = 8, .curvature = curvature}).value();
      // Whoever asks and whoever answers in AD-PSGD must be told apart.
      CheckRows(rates, std::string(graph) == "complete" ? 1 : 0);
      for (const ordered_json& row : rates["rows"]) {
        if (row.contains("refused")) continue;
        const double rate = row["rate"];
        if (rate < .3 || row["algorithm"] == "noloco") continue;
        SCOPED_TRACE(std::string(graph) + ": " + row.dump());
        const double allowed = row["algorithm"] == "ad-psgd" ? .003 : .04;
        EXPECT_NEAR(row["measured_rate"].get<double>(), rate, allowed);
      }
    }
  }
}

TEST(GossipRatesTest, SoTheyDoOnUnequalRegressions) {
  for (const char* graph : {"ring:lazy=1", "star:lazy=1"}) {
    const auto rates =
        GossipRates({.graph = graph, .nodes = 5, .problem = "logistic", .curvature = .4});
    // A ring of 5 has no two sides.
    CheckRows(*rates, std::string(graph) == "ring:lazy=1" ? 1 : 0);
    for (const ordered_json& row : (*rates)["rows"]) {
      if (row.contains("refused")) continue;
      const double left = row["left"];
      if (row["algorithm"] == "dpsgd") {
        EXPECT_GT(left, .05);
      } else if (row["algorithm"] == "d2") {
        EXPECT_LT(left, 1e-6);
      }
    }
  }
}

TEST(GossipRatesTest, SoTheyDoOnDirectedGraphsAndOnThoseThatChange) {
  for (const char* problem : {"quadratics", "logistic"}) {
    CheckRows(GossipRates({.graph = "exponential", .problem = problem}).value(), 2);  // D^2 too
    // Those that average what all have shown last need a graph that stays, and so does D^2.
    CheckRows(GossipRates({.graph = "one-peer-exponential", .problem = problem}).value(), 4);
  }
}

TEST(GossipRatesTest, OnlyPushSumRunsWhereSomeTakeMoreThanTheyGive) {
  const std::string path = testing::TempDir() + "unbalanced.txt";
  std::ofstream(path) << "0 > 1\n1 > 2\n2 > 3\n3 > 0\n0 > 2\n";
  for (const char* problem : {"quadratics", "logistic"}) {
    CheckRows(GossipRates({.graph = path, .nodes = 4, .problem = problem}).value(), 10);
  }
}

TEST(GossipRatesTest, AFineCodecChangesLittleAndDSquaredIsRefusedWhereItDiverges) {
  const auto rates =
      GossipRates({.graph = "ring", .nodes = 4, .codec = "dither:bits=8"}).value();
  for (const ordered_json& row : rates["rows"]) {
    if (row["algorithm"] == "d2") {
      EXPECT_THAT(row["refused"].get<std::string>(), testing::HasSubstr("lazy=1"));
    }
    if (row["algorithm"] == "choco") {
      EXPECT_NEAR(row["codec_rate"].get<double>(), row["rate"].get<double>(), .03);
    }
  }
}

TEST(GossipRatesTest, OfARunThatIsNotAtRestNothingIsSaidToBeLeft) {
  const auto rates =
      GossipRates({.graph = "ring:lazy=1", .nodes = 32, .curvature = .002}).value();
  for (const ordered_json& row : rates["rows"]) {
    if (row["algorithm"] == "gradient-tracking") {
      EXPECT_GT(row["rate"].get<double>(), .996);
      EXPECT_TRUE(row["measured_left"].is_null()) << row.dump();
    } else if (row["algorithm"] == "dpsgd") {
      EXPECT_LT(row["rate"].get<double>(), .992);
      EXPECT_GT(row["measured_left"].get<double>(), .01);
    }
  }
}

TEST(GossipRatesTest, RefusesGraphsThatDoNotRepeatAndUnknownProblems) {
  const auto pairs = GossipRates({.graph = "random-pairs"});
  ASSERT_FALSE(pairs.ok());
  EXPECT_THAT(pairs.status().message(), testing::HasSubstr("repeat after 64 rounds"));
  const auto unknown = GossipRates({.graph = "ring", .problem = "cubics"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.status().message(), testing::HasSubstr("quadratics, logistic"));
}

}  // namespace
}  // namespace elastiquant::rates
