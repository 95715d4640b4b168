#include "elastiquant/protocol/gossip/attendance.h"

#include <gtest/gtest.h>

namespace elastiquant {
namespace {

Attendance Of(std::string_view spec, size_t nodes, int rank) {
  return Attendance(*Graph::Parse(spec, nodes, 1), rank);
}

TEST(Attendance, NeighboursTakeTheWeightsOfTheGraph) {
  const Attendance ring = Of("ring", 5, 0);
  EXPECT_EQ(ring.SendersIn(7), (std::vector<int>{1, 4}));
  EXPECT_EQ(ring.ReceiversIn(7), (std::vector<int>{1, 4}));
  EXPECT_DOUBLE_EQ(ring.TakesFrom(1, 7), 1.0 / 3);
  EXPECT_DOUBLE_EQ(ring.GivesTo(4, 7), 1.0 / 3);
  EXPECT_EQ(ring.TakesFrom(2, 7), 0);  // no neighbour
  EXPECT_EQ(ring.TakesFrom(0, 7), 0);  // itself
  EXPECT_EQ(ring.PartGiven(7), 1);
}

TEST(Attendance, AGraphThatChangesHasOtherNeighboursInEachRound) {
  const Attendance node = Of("one-peer-exponential", 8, 0);
  for (const uint64_t round : {0, 1, 2, 3, 100, 2, 0}) {  // earlier ones again, too
    const int distance = 1 << (round % 3);
    EXPECT_EQ(node.SendersIn(round), (std::vector<int>{distance})) << round;
    EXPECT_EQ(node.ReceiversIn(round), (std::vector<int>{8 - distance})) << round;
    EXPECT_EQ(node.TakesFrom(distance, round), 0.5) << round;
  }
}

TEST(Attendance, WhoHasLeftIsAwayUntilItReturns) {
  Attendance ring = Of("ring", 5, 0);
  ring.Leave(1, 10);
  EXPECT_TRUE(ring.is_present(1, 9));
  EXPECT_FALSE(ring.is_present(1, 10));
  EXPECT_EQ(ring.SendersIn(9), (std::vector<int>{1, 4}));
  EXPECT_EQ(ring.SendersIn(1000), std::vector<int>{4});
  ring.Return(1, 20);
  EXPECT_FALSE(ring.is_present(1, 19));
  EXPECT_TRUE(ring.is_present(1, 20));
  ring.Leave(1, 30);  // a second time
  EXPECT_FALSE(ring.is_present(1, 15));
  EXPECT_TRUE(ring.is_present(1, 29));
  EXPECT_FALSE(ring.is_present(1, 30));
  ring.Leave(1, 32);  // is away already
  ring.Return(1, 40);
  EXPECT_TRUE(ring.is_present(1, 40));
  EXPECT_FALSE(ring.is_present(1, 39));
  ring.Return(4, 30);  // has never left
  EXPECT_TRUE(ring.is_present(4, 30));
}

TEST(Attendance, WhatIsGivenIsAsMuchAsWhatIsTaken) {
  Attendance node = Of("exponential", 8, 0);  // takes from 1, 2 and 4, gives to 7, 6 and 4
  EXPECT_EQ(node.PartGiven(0), 1);
  node.Leave(1, 5);
  EXPECT_EQ(node.PartGiven(4), 1);
  EXPECT_DOUBLE_EQ(node.PartGiven(5), 2.0 / 3);  // takes from two, gives to three
  node.Leave(7, 6);
  EXPECT_DOUBLE_EQ(node.PartGiven(6), 1);
  node.Leave(6, 7);
  EXPECT_DOUBLE_EQ(node.PartGiven(7), 2);
  node.Leave(4, 8);                 // from whom it takes, and to whom it gives
  EXPECT_EQ(node.PartGiven(8), 0);  // there is nobody left to give to
}

}  // namespace
}  // namespace elastiquant
