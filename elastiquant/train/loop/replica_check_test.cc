#include "elastiquant/train/loop/replica_check.h"

#include <gtest/gtest.h>

#include <vector>

namespace elastiquant {
namespace {

std::vector<int> Odd(const std::vector<uint64_t>& hashes) { return OddReplicas(hashes); }

TEST(ReplicaCheckTest, SameHashesAreFine) {
  EXPECT_EQ(Odd({}), (std::vector<int>{}));
  EXPECT_EQ(Odd({7}), (std::vector<int>{}));
  EXPECT_EQ(Odd({7, 7, 7}), (std::vector<int>{}));
  EXPECT_EQ(Odd({0, 0}), (std::vector<int>{}));
}

TEST(ReplicaCheckTest, TheMinorityIsNamed) {
  EXPECT_EQ(Odd({7, 7, 8}), (std::vector<int>{2}));
  EXPECT_EQ(Odd({8, 7, 7}), (std::vector<int>{0}));
  EXPECT_EQ(Odd({7, 8, 7, 9, 7}), (std::vector<int>{1, 3}));
}

TEST(ReplicaCheckTest, WorkerZeroIsRightWhenThereIsNoMajority) {
  EXPECT_EQ(Odd({7, 8}), (std::vector<int>{1}));
  EXPECT_EQ(Odd({9, 3}), (std::vector<int>{1}));
  EXPECT_EQ(Odd({9, 3, 3, 9}), (std::vector<int>{1, 2}));
  EXPECT_EQ(Odd({5, 4, 3}), (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace elastiquant
