#include "elastiquant/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/graph/edge_file.h"
#include "elastiquant/graph/parts.h"
#include "elastiquant/graph/random_graphs.h"

namespace elastiquant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const Graph> GraphOf(const std::string& spec, size_t nodes, uint64_t seed = 1) {
  auto graph = Graph::Parse(spec, nodes, seed);
  EXPECT_TRUE(graph.ok()) << spec << ": " << graph.status().ToString();
  return *graph;
}

std::string ErrorOf(const std::string& spec, size_t nodes) {
  return Graph::Parse(spec, nodes, 1).status().message();
}

TEST(Graph, EveryStepOfEveryGraphIsDoublyStochastic) {
  for (const std::string& name : GraphNames()) {
    for (const size_t nodes : {1, 2, 3, 4, 5, 7, 8, 12, 16}) {
      const auto graph = Graph::Parse(name, nodes, 7);
      if (!graph.ok()) {
        EXPECT_TRUE(name == "hypercube" || name == "random-regular")
            << graph.status().message();
        continue;
      }
      for (uint64_t step = 0; step < 6; ++step) {
        const Mixing mixing = (*graph)->At(step);
        EXPECT_TRUE(CheckDoublyStochastic(mixing).ok()) << name << " of " << nodes;
        EXPECT_TRUE(!(*graph)->is_symmetric() || IsSymmetric(mixing)) << name;
        for (size_t i = 0; i < nodes; ++i) {
          for (size_t j = 0; j < nodes; ++j) {
            if (i == j || mixing(i, j) == 0) continue;
            const auto& senders = (*graph)->senders(static_cast<int>(i));
            EXPECT_NE(std::ranges::find(senders, static_cast<int>(j)), senders.end());
          }
        }
      }
    }
  }
}

TEST(Graph, GapsAreThePublishedOnes) {
  // Koloskova et al., ICML 2019, table 2, and Ying et al., NeurIPS 2021.
  EXPECT_NEAR(GraphOf("ring", 16)->Factors().gap, .051, 1e-3);
  EXPECT_NEAR(GraphOf("torus", 16)->Factors().gap, .4, 1e-9);
  EXPECT_NEAR(GraphOf("complete", 9)->Factors().gap, 1, 1e-9);
  EXPECT_NEAR(GraphOf("exponential", 16)->Factors().gap, .4, 1e-9);
  // Exact after log2 n steps.
  EXPECT_EQ(GraphOf("one-peer-exponential", 16)->Factors().gap, 1);
  EXPECT_LT(GraphOf("one-peer-exponential", 6)->Factors().gap, 1);
  EXPECT_NEAR(GraphOf("ring:lazy=1", 8)->Factors().gap, .195 / 2, 1e-3);
  EXPECT_NEAR(GraphOf("hypercube", 8)->Factors().gap, .5, 1e-9);
}

TEST(Graph, PairsShrinkDifferencesAsFarAsTheySay) {
  for (const size_t nodes : {4, 5, 8, 13}) {
    const auto graph = GraphOf("random-pairs", nodes);
    // E |W d|^2 / |d|^2 of a vector whose mean is 0, over many steps.
    std::vector<double> d(nodes, -1 / static_cast<double>(nodes - 1));
    d[0] = 1;
    double before = 0;
    for (const double v : d) before += v * v;
    double ratio = 0;
    constexpr int kSteps = 20000;
    for (uint64_t step = 0; step < kSteps; ++step) {
      const Mixing mixing = graph->At(step);
      double after = 0;
      for (size_t i = 0; i < nodes; ++i) {
        double sum = 0;
        for (size_t j = 0; j < nodes; ++j) sum += mixing(i, j) * d[j];
        after += sum * sum;
      }
      ratio += after / before / kSteps;
    }
    EXPECT_NEAR(std::sqrt(ratio), graph->Factors().contraction, .01) << nodes;
  }
}

TEST(Graph, PairsDifferFromStepToStepAndAreTheSameForAll) {
  const auto a = GraphOf("random-pairs", 8, 3), b = GraphOf("random-pairs", 8, 3);
  EXPECT_EQ(a->At(5).weights, b->At(5).weights);
  EXPECT_NE(a->At(5).weights, a->At(6).weights);
  EXPECT_NE(a->At(5).weights, GraphOf("random-pairs", 8, 4)->At(5).weights);
  EXPECT_EQ(a->senders(3).size(), 7u);
}

TEST(Graph, RandomRegularHasTheDegree) {
  for (const size_t degree : {2, 3, 5, 8}) {
    const auto graph = GraphOf("random-regular:degree=" + std::to_string(degree), 10);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(graph->senders(i).size(), degree);
    EXPECT_GT(graph->Factors().gap, 0);
  }
}

TEST(Graph, DirectedPeersTakeAndGive) {
  const auto graph = GraphOf("one-peer-exponential", 8);
  EXPECT_EQ(graph->period(), 3u);
  EXPECT_FALSE(graph->is_symmetric());
  EXPECT_THAT(graph->senders(0), ElementsAre(1, 2, 4));
  EXPECT_THAT(graph->receivers(0), ElementsAre(4, 6, 7));
}

TEST(Graph, SidesAreThoseOfBipartiteGraphs) {
  EXPECT_THAT(GraphOf("ring", 4)->Sides(), ElementsAre(true, false, true, false));
  EXPECT_TRUE(GraphOf("ring", 5)->Sides().empty());
  EXPECT_EQ(GraphOf("star", 5)->Sides().size(), 5u);
  EXPECT_TRUE(GraphOf("complete", 3)->Sides().empty());
  EXPECT_EQ(GraphOf("hypercube", 8)->Sides().size(), 8u);
}

TEST(Graph, ErrorsSayWhatToDo) {
  EXPECT_THAT(ErrorOf("rings", 4), HasSubstr("valid are: ring, torus"));
  EXPECT_THAT(ErrorOf("ring:p=.5", 4), HasSubstr("it has lazy"));
  EXPECT_THAT(ErrorOf("torus:rows=3", 8), HasSubstr("cannot have 3 rows"));
  EXPECT_THAT(ErrorOf("hypercube", 6), HasSubstr("2, 4, 8"));
  EXPECT_THAT(ErrorOf("random-regular:degree=3", 5), HasSubstr("one of the two must be even"));
  EXPECT_THAT(ErrorOf("erdos-renyi:p=2", 5), HasSubstr("up to 1"));
  EXPECT_THAT(ErrorOf("erdos-renyi:p=0.001", 50), HasSubstr("a larger p"));
  EXPECT_THAT(ErrorOf("ring", 2000), HasSubstr("1 to 1024"));
  EXPECT_THAT(ErrorOf("no/such.file", 4), HasSubstr("cannot open 'no/such.file'"));
}

TEST(Graph, DigestsTellWeightsApart) {
  const auto digest = [](const char* edges) {
    return Graph::Of(ParseEdges(edges, 4, "edges").value(), "edges").value()->Digest();
  };
  const uint64_t ring = digest("0 1\n1 2\n2 3\n3 0\n");
  EXPECT_EQ(ring, digest("3 2  # in another order\n1 0\n0 3\n1 2\n"));
  EXPECT_EQ(ring, GraphOf("ring", 4)->Digest());
  EXPECT_EQ(digest("0 1 .1\n1 2 .2\n2 3 .3\n"), digest("2 3 .3\n1 2 .2\n0 1 .1\n"));
  EXPECT_NE(ring, digest("0 1\n1 2\n2 3\n"));
  EXPECT_NE(ring, digest("0 1 .3\n1 2 .3\n2 3 .3\n3 0 .3\n"));
  EXPECT_NE(ring, GraphOf("ring:lazy=1", 4)->Digest());
  EXPECT_NE(digest("0 > 1\n1 > 2\n2 > 3\n3 > 0\n"), digest("1 > 0\n2 > 1\n3 > 2\n0 > 3\n"));
  EXPECT_NE(GraphOf("random-pairs", 4, 1)->Digest(), GraphOf("random-pairs", 4, 2)->Digest());
  EXPECT_NE(GraphOf("exponential", 8)->Digest(), GraphOf("one-peer-exponential", 8)->Digest());
  EXPECT_TRUE(IsEdgeFile("./edges:lazy=1"));
  EXPECT_FALSE(IsEdgeFile("erdos-renyi:p=0.5"));
}

TEST(EdgeFile, HasMetropolisWeightsOrItsOwn) {
  const auto plain = ParseEdges("# a path\n0 1\n1 2  # to the end\n\n", 3, "edges");
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_NEAR((*plain)(0, 1), 1.0 / 3, 1e-12);
  EXPECT_NEAR((*plain)(0, 0), 2.0 / 3, 1e-12);
  const auto weighted = ParseEdges("0 1 .1\n1 2 .9\n", 3, "edges");
  ASSERT_TRUE(weighted.ok()) << weighted.status().ToString();
  EXPECT_NEAR((*weighted)(1, 1), 0, 1e-12);
  EXPECT_TRUE(CheckDoublyStochastic(*weighted).ok());
}

TEST(EdgeFile, DirectedEdgesGiveEqualParts) {
  const auto mixing = ParseEdges("0 > 1\n0 > 2\n1 > 2\n2 > 0\n", 3, "edges");
  ASSERT_TRUE(mixing.ok()) << mixing.status().ToString();
  EXPECT_NEAR((*mixing)(1, 0), 1.0 / 3, 1e-12);
  EXPECT_NEAR((*mixing)(2, 1), 1.0 / 2, 1e-12);
  EXPECT_EQ((*mixing)(0, 1), 0);
  const auto graph = Graph::Of(*mixing, "edges");
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_FALSE((*graph)->is_balanced());
  EXPECT_THAT((*graph)->senders(2), ElementsAre(0, 1));
  // All can be reached from 0, but 0 from nobody.
  EXPECT_FALSE(ParseEdges("0 > 1\n1 > 2\n2 > 1\n", 3, "edges").ok());
  EXPECT_THAT(ParseEdges("0 > 1\n1 2\n", 3, "edges").status().message(), HasSubstr("or none"));
}

TEST(EdgeFile, NamesTheLineOrRowThatIsWrong) {
  const auto error = [](const std::string& text) {
    return ParseEdges(text, 3, "edges").status().message();
  };
  EXPECT_THAT(error("0 1\n1 3\n"), HasSubstr("edges, line 2"));
  EXPECT_THAT(error("0 1\n1 0\n1 2"), HasSubstr("line 2: this edge has stood before"));
  EXPECT_THAT(error("0 1 2\n"), HasSubstr("a weight is a number above 0 and below 1"));
  EXPECT_THAT(error("0 1\n"), HasSubstr("not all of the 3 workers"));
  EXPECT_THAT(error("0 1\n"), HasSubstr("no way from worker 0 to worker 2"));
  EXPECT_THAT(error("0 1 .3\n\n1 2\n"), HasSubstr("edges, lines 1 and 3: either all edges"));
  EXPECT_THAT(error("0 1 .6\n1 2 .6\n"), HasSubstr("row 1 add up to 1.2"));
}

TEST(GraphParts, AreThoseThatReachEachOther) {
  const auto ring = GraphOf("ring", 6);
  EXPECT_EQ(Describe(PartsOf(*ring, {0, 1, 2, 3, 4, 5})), "0, 1, 2, 3, 4, 5");
  EXPECT_EQ(Describe(PartsOf(*ring, {5, 3, 1, 2, 4})), "1, 2, 3, 4, 5");
  const GraphParts split = PartsOf(*ring, {5, 4, 2, 1});
  EXPECT_EQ(Describe(split), "1, 2 | 4, 5");
  EXPECT_FALSE(EdgeBetween(*ring, split)) << "no edge of an undirected graph leads one way";
  EXPECT_EQ(Describe(PartsOf(*GraphOf("star", 4), {1, 2, 3})), "1 | 2 | 3");
  EXPECT_EQ(Describe(PartsOf(*GraphOf("random-pairs", 4), {1, 2, 3})), "1, 2, 3");
}

TEST(GraphParts, OfADirectedGraphHaveAWayBack) {
  const Mixing mixing = ParseEdges("0 > 1\n1 > 2\n2 > 3\n3 > 0\n3 > 2\n", 4, "e").value();
  const auto graph = Graph::Of(mixing, "directed").value();
  EXPECT_EQ(PartsOf(*graph, {0, 1, 2, 3}).size(), 1u);
  const GraphParts parts = PartsOf(*graph, {0, 2, 3});
  EXPECT_EQ(Describe(parts), "0 | 2, 3");
  EXPECT_EQ(EdgeBetween(*graph, parts), std::make_pair(3, 0));
  // Over its period a graph that changes has all of its edges.
  EXPECT_EQ(PartsOf(*GraphOf("one-peer-exponential", 8), {0, 1, 2, 4, 5, 6, 7}).size(), 1u);
}

TEST(EdgeFile, NamesTheLineOrRowOfDirectedEdgesToo) {
  const auto error = [](const std::string& text) {
    return ParseEdges(text, 3, "edges").status().message();
  };
  EXPECT_THAT(error("0 > 1\n1 > 2\n2 > 1\n"), HasSubstr("no way from worker 1 to worker 0"));
  EXPECT_THAT(error("0 > 1\n1 > 0\n2 > 1\n"), HasSubstr("no way from worker 0 to worker 2"));
  EXPECT_THAT(error("0 > 1\n1 2\n"), HasSubstr("edges, lines 1 and 2: either all edges"));
  EXPECT_THAT(error("0 > 1 .5\n"), HasSubstr("line 1: a directed edge has no weight"));
  EXPECT_THAT(error("0 > 1\n0 > 1\n"), HasSubstr("line 2: this edge has stood before"));
  EXPECT_THAT(error("0 > 3\n"), HasSubstr("line 1: an edge is two different numbers"));
}

TEST(Mixing, ChecksNameTheRow) {
  Mixing mixing = RingMixing(4);
  EXPECT_TRUE(CheckDoublyStochastic(mixing).ok());
  EXPECT_TRUE(CheckColumns(mixing).ok());
  mixing(2, 3) = .5;
  EXPECT_THAT(CheckDoublyStochastic(mixing).message(), HasSubstr("row 2"));
  EXPECT_FALSE(Graph::Of(mixing, "mine").ok());
  EXPECT_TRUE(Graph::Of(RingMixing(4), "mine").ok());
}

TEST(RandomGraphs, ConnectednessIsSeen) {
  std::vector<bool> linked(9, false);
  linked[1] = linked[3] = true;
  EXPECT_FALSE(IsConnected(3, linked));
  linked[5] = linked[7] = true;
  EXPECT_TRUE(IsConnected(3, linked));
}

}  // namespace
}  // namespace elastiquant
