#include "elastiquant/ddp/ddp_plan.h"

#include <gtest/gtest.h>

#include "elastiquant/ddp/testing.h"

namespace elastiquant {
namespace {

std::vector<DdpParameter> PlannedParameters() {
  return {Parameter("a.weight", 10, 10, "qsgd:bits=4"), Parameter("a.bias", 10, 1, "fp32"),
          Parameter("b.weight", 10, 30, "qsgd:bits=4"), Parameter("b.bias", 30, 1, "fp32"),
          Parameter("c.weight", 10, 20, "dither:bits=1")};
}

std::vector<size_t> SizesOf(const DdpPlan& plan) {
  std::vector<size_t> sizes;
  for (const PlannedBucket& bucket : plan.plan.buckets) sizes.push_back(bucket.elements);
  return sizes;
}

TEST(PlanDdp, EveryCoordinateHasOnePlaceInItsDdpBucket) {
  const auto parameters = PlannedParameters();
  const DdpPlan plan = PlanDdp({{4, 3, 2}, {1, 0}}, parameters, 1000).value();
  ASSERT_EQ(plan.parts.size(), 2u);
  EXPECT_EQ(plan.position, (std::vector<size_t>{10, 0, 230, 200, 0}));
  std::vector<int> seen(parameters.size(), 0);
  for (size_t d = 0; d < 2; ++d) {
    for (const size_t b : plan.parts[d]) {
      EXPECT_EQ(plan.ddp_bucket[b], d);
      size_t offset = 0;
      for (const BucketSlot& slot : plan.plan.buckets[b].slots) {
        EXPECT_EQ(parameters[slot.parameter].codec, plan.codecs[b]);
        EXPECT_EQ(slot.offset, offset);
        offset += parameters[slot.parameter].shape.elements;
        ++seen[slot.parameter];
      }
      EXPECT_EQ(plan.plan.buckets[b].elements, offset);
      EXPECT_EQ(plan.plan.buckets[b].exact, plan.codecs[b] == "fp32");
      EXPECT_FALSE(plan.plan.buckets[b].name.empty());
    }
  }
  EXPECT_EQ(seen, std::vector<int>(parameters.size(), 1));
}

TEST(PlanDdp, ABucketClosesWhenItIsFull) {
  std::vector<DdpParameter> parameters;
  for (int i = 0; i < 10; ++i) {
    parameters.push_back(Parameter("p" + std::to_string(i), 4, 10, "qsgd:bits=4"));
  }
  const DdpPlan plan = PlanDdp({{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, parameters, 100).value();
  EXPECT_EQ(SizesOf(plan), (std::vector<size_t>{120, 120, 120, 40}));
}

TEST(PlanDdp, WhatIsReadyLastIsSmall) {
  const std::vector<DdpParameter> parameters = {
      Parameter("a", 100, 200, "qsgd:bits=4"), Parameter("b", 100, 300, "qsgd:bits=4"),
      Parameter("c", 100, 40, "qsgd:bits=4"), Parameter("d", 100, 10, "qsgd:bits=4")};
  EXPECT_EQ(SizesOf(PlanDdp({{0, 1, 2, 3}}, parameters, 80000).value()),
            (std::vector<size_t>{50000, 5000}));
  EXPECT_EQ(SizesOf(PlanDdp({{0, 1, 2, 3}}, parameters, 39999).value()),
            (std::vector<size_t>{50000, 4000, 1000}));  // .. of which c is no part
  // Only of the last DDP bucket; nor is one tensor cut, nor all of a bucket the tail.
  EXPECT_EQ(SizesOf(PlanDdp({{0, 1, 2}, {3}}, parameters, 80000).value()),
            (std::vector<size_t>{54000, 1000}));
  EXPECT_EQ(SizesOf(PlanDdp({{3, 2, 1, 0}}, parameters, 80000).value()),
            (std::vector<size_t>{55000}));
  EXPECT_EQ(SizesOf(PlanDdp({{0, 1, 2, 3}}, parameters, 800000).value()),
            (std::vector<size_t>{55000}));
}

TEST(PlanDdp, FewElementsBeforeTheLastWaitForIt) {
  const std::vector<DdpParameter> parameters = {
      Parameter("a", 10, 2000, "qsgd:bits=4"), Parameter("few", 1, 1024, "fp32"),
      Parameter("b", 10, 10, "qsgd:bits=4"), Parameter("last", 1, 10, "fp32")};
  EXPECT_EQ(SizesOf(PlanDdp({{0, 1, 2, 3}}, parameters, 80000).value()),
            (std::vector<size_t>{20000, 100, 1034}));
}

TEST(PlanDdp, RefusesWhatItCannotPlan) {
  const auto parameters = PlannedParameters();
  EXPECT_EQ(PlanDdp({{0, 5}}, parameters, 10).status().code(), StatusCode::kInvalidArgument);
  const Status twice = PlanDdp({{0, 1}, {0}}, parameters, 10).status();
  EXPECT_NE(twice.message().find("a.weight a second time"), std::string::npos);
  EXPECT_FALSE(PlanDdp({{0}}, parameters, 0).ok());
  std::vector<DdpParameter> bad = parameters;
  bad[0].codec = "qsdg";
  EXPECT_FALSE(PlanDdp({{0}}, bad, 10).ok());
}

}  // namespace
}  // namespace elastiquant
