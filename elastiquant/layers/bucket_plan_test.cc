#include "elastiquant/layers/bucket_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace elastiquant {
namespace {

std::vector<ParameterShape> SmallNet() {
  return {{"conv1.weight", 400, 4}, {"bn1.weight", 16, 1}, {"bn1.bias", 16, 1},
          {"conv2.weight", 900, 4}, {"bn2.weight", 16, 1}, {"bn2.bias", 16, 1},
          {"conv3.weight", 200, 4}, {"fc.weight", 160, 2}, {"fc.bias", 10, 1}};
}

// Every parameter lies in exactly one place, and no two overlap.
void ExpectWhole(const BucketPlan& plan, const std::vector<ParameterShape>& parameters,
                 size_t scalars) {
  std::map<size_t, int> seen;
  size_t total = 0;
  for (const PlannedBucket& bucket : plan.buckets) {
    size_t next = 0;
    for (const BucketSlot& slot : bucket.slots) {
      EXPECT_EQ(slot.offset, next);
      next += parameters[slot.parameter].elements;
      ++seen[slot.parameter];
    }
    EXPECT_GE(bucket.elements, next);
    EXPECT_FALSE(bucket.name.empty());
    total += bucket.elements;
  }
  EXPECT_EQ(seen.size(), parameters.size());
  for (const auto& [parameter, count] : seen) EXPECT_EQ(count, 1) << parameter;
  size_t expected = scalars;
  for (const ParameterShape& p : parameters) expected += p.elements;
  EXPECT_EQ(total, expected);
}

TEST(BucketPlanTest, EveryParameterHasOnePlaceAtAnyBucketSize) {
  const auto parameters = SmallNet();
  for (size_t limit : {1, 16, 17, 100, 900, 901, 5000}) {
    for (const char* exact : {"1d", "none", "fc.*", "1d,fc.weight", "*"}) {
      for (size_t scalars : {0, 2}) {
        const auto plan = PlanBuckets(
            parameters, {.bucket_elements = limit, .exact = exact, .scalars = scalars});
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        ExpectWhole(*plan, parameters, scalars);
      }
    }
  }
}

TEST(BucketPlanTest, BucketsHoldParametersOfOneGroup) {
  const auto parameters = SmallNet();
  const std::vector<size_t> groups{0, 0, 0, 1, 1, 1, 2, 2, 0};
  for (size_t limit : {1, 100, 5000}) {
    const auto plan =
        PlanBuckets(parameters, {.bucket_elements = limit, .groups = groups, .scalars = 2});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ExpectWhole(*plan, parameters, 2);
    for (const PlannedBucket& bucket : plan->buckets) {
      for (const BucketSlot& slot : bucket.slots) {
        EXPECT_EQ(groups[slot.parameter], groups[bucket.slots[0].parameter]);
      }
    }
  }
  EXPECT_FALSE(PlanBuckets(parameters, {.groups = {0, 1}}).ok());
}

TEST(BucketPlanTest, TensorsAreMatricesThatKnowTheirKernels) {
  const std::vector<ParameterShape> parameters = {
      {"bias", 16, 1, 16}, {"conv.weight", 16 * 8 * 9, 4, 16, 9}, {"fc.weight", 160, 2, 10}};
  PlannedBucket bucket;
  bucket.slots = {{2, 0}, {1, 160}, {0, 1312}};
  const std::vector<TensorShape> tensors = TensorsOf(bucket, parameters);
  ASSERT_EQ(tensors.size(), 3u);
  const std::vector<TensorShape> expected = {{10, 16, 1}, {16, 72, 9}, {1, 16, 1}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tensors[i].rows, expected[i].rows);
    EXPECT_EQ(tensors[i].cols, expected[i].cols);
    EXPECT_EQ(tensors[i].kernel, expected[i].kernel);
  }
}

TEST(BucketPlanTest, BucketsFillInTheOrderOfBackward) {
  const auto plan = PlanBuckets(SmallNet(), {.bucket_elements = 300});
  ASSERT_TRUE(plan.ok());
  size_t previous = 1000;
  for (const PlannedBucket& bucket : plan->buckets) {
    EXPECT_LT(bucket.slots.back().parameter, previous);
    previous = bucket.slots.back().parameter;
  }
}

TEST(BucketPlanTest, BiasesAndNormsStayExactByDefault) {
  const auto parameters = SmallNet();
  const auto plan = PlanBuckets(parameters, {});
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->buckets.size(), 2u);
  for (const PlannedBucket& bucket : plan->buckets) {
    for (const BucketSlot& slot : bucket.slots) {
      EXPECT_EQ(bucket.exact, parameters[slot.parameter].dimensions == 1);
    }
  }
}

TEST(BucketPlanTest, ScalarsLieAtTheEndOfAnExactBucket) {
  const auto shared = PlanBuckets(SmallNet(), {.scalars = 2});
  ASSERT_TRUE(shared.ok());
  const PlannedBucket& bucket = shared->buckets[shared->scalars.bucket];
  EXPECT_TRUE(bucket.exact);
  EXPECT_EQ(shared->scalars.offset + 2, bucket.elements);

  const auto own = PlanBuckets(SmallNet(), {.exact = "none", .scalars = 2});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->scalars.bucket, own->buckets.size() - 1);
  EXPECT_TRUE(own->buckets.back().exact);
  EXPECT_EQ(own->buckets.back().elements, 2u);
}

TEST(BucketPlanTest, MistakesAreExplained) {
  const auto none = PlanBuckets(SmallNet(), {.exact = "1d,fcc.*"});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("'fcc.*'"), std::string::npos);
  EXPECT_FALSE(PlanBuckets(SmallNet(), {.bucket_elements = 0}).ok());
  EXPECT_FALSE(PlanBuckets({}, {}).ok());
}

}  // namespace
}  // namespace elastiquant
