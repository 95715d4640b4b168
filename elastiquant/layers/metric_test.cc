#include "elastiquant/layers/metric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace elastiquant {
namespace {

// Three matrices, of which the last is alone in its bucket, and a bias that stays exact.
class MetricTest : public testing::Test {
 protected:
  MetricTest() {
    for (const ParameterShape& shape : shapes_) {
      std::vector<float> v(shape.elements);
      for (size_t i = 0; i < v.size(); ++i) {
        v[i] = std::ldexp(1.0f + static_cast<float>(i % 7), -static_cast<int>(i % 20));
      }
      moments_.push_back(std::move(v));
    }
    for (size_t b = 0; b < plan_.buckets.size(); ++b) {
      lossy_.push_back(!plan_.buckets[b].exact);
      for (const BucketSlot& slot : plan_.buckets[b].slots) {
        bucket_.resize(shapes_.size());
        bucket_[slot.parameter] = b;
      }
    }
  }
  SecondMoments Spans() const { return {moments_.begin(), moments_.end()}; }
  std::vector<float> Values(size_t bucket) const {
    std::vector<float> values(plan_.buckets[bucket].elements);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 20.5f;
    return values;
  }
  size_t BucketOf(size_t parameter) const { return bucket_[parameter]; }
  size_t OffsetOf(size_t parameter) const {
    for (const BucketSlot& slot : plan_.buckets[BucketOf(parameter)].slots) {
      if (slot.parameter == parameter) return slot.offset;
    }
    return 0;
  }

  const std::vector<ParameterShape> shapes_{
      {"a", 90, 2, 9}, {"bias", 10, 1, 1}, {"b", 60, 2, 6}, {"c", 100, 2, 10}};
  const BucketPlan plan_ = PlanBuckets(shapes_, {.bucket_elements = 100}).value();
  std::vector<bool> lossy_;
  std::vector<size_t> bucket_;  // by parameter
  std::vector<std::vector<float>> moments_;
};

TEST_F(MetricTest, IsPlainUntilThereAreMoments) {
  Metric metric(plan_, shapes_, lossy_);
  metric.BeginStep();
  EXPECT_TRUE(metric.is_plain());
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    std::vector<float> values = Values(b);
    EXPECT_EQ(metric.Enter(b, values), 0);
    EXPECT_EQ(values, Values(b));
    metric.Leave(b, values);
    EXPECT_EQ(values, Values(b));
  }
}

TEST_F(MetricTest, DividesByTheRootOfTheMoments) {
  Metric metric(plan_, shapes_, lossy_);
  ASSERT_TRUE(metric.Set(Spans()).ok());
  metric.BeginStep();
  EXPECT_FALSE(metric.is_plain());
  for (const size_t p : {0u, 2u, 3u}) {
    const size_t b = BucketOf(p);
    double sum = 0;
    for (const float v : moments_[p]) sum += static_cast<double>(v);
    const double floor = sum / static_cast<double>(moments_[p].size()) * Metric::kFloor;
    std::vector<float> values = Values(b);
    EXPECT_NE(metric.Enter(b, values), 0);
    for (size_t i = 0; i < moments_[p].size(); ++i) {
      const double expected = static_cast<double>(Values(b)[OffsetOf(p) + i]) /
                              std::sqrt(static_cast<double>(moments_[p][i]) + floor);
      const auto converted = static_cast<double>(values[OffsetOf(p) + i]);
      EXPECT_NEAR(converted / expected, 1, .04) << shapes_[p].name << " " << i;
    }
    metric.Leave(b, values);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i] / Values(b)[i], 1, 1e-6) << i;
    }
  }
}

TEST_F(MetricTest, LeavesBucketsAloneThatLoseNothing) {
  Metric metric(plan_, shapes_, lossy_);
  ASSERT_TRUE(metric.Set(Spans()).ok());
  metric.BeginStep();
  const size_t exact = BucketOf(1);
  std::vector<float> values = Values(exact);
  EXPECT_EQ(metric.Enter(exact, values), 0);
  EXPECT_EQ(values, Values(exact));
}

// A weight that nobody has used yet, one whose gradients were zero so far, and one that has
// diverged.
TEST_F(MetricTest, GivesAParameterWithoutMomentsTheSizeOfTheOthers) {
  const float bad[] = {0.0f, std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (int n = 0; n < 4; ++n) {
    if (n > 0) moments_[3].assign(100, bad[n - 1]);
    SecondMoments moments = Spans();
    if (n == 0) moments[3] = {};
    Metric metric(plan_, shapes_, lossy_);
    ASSERT_TRUE(metric.Set(std::move(moments)).ok());
    metric.BeginStep();
    double sum = 0;
    for (const size_t p : {0u, 2u}) {
      for (const float v : moments_[p]) sum += static_cast<double>(v);
    }
    const double unit = std::sqrt(sum / 150);
    const size_t b = BucketOf(3);
    std::vector<float> values = Values(b);
    (void)metric.Enter(b, values);
    for (size_t i = 0; i < 100; ++i) {
      const auto from = static_cast<double>(Values(b)[OffsetOf(3) + i]);
      EXPECT_NEAR(static_cast<double>(values[OffsetOf(3) + i]), from / unit,
                  1e-5 * std::abs(from / unit));
    }
    metric.Leave(b, values);
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i] / Values(b)[i], 1, 1e-6);
  }
}

TEST_F(MetricTest, IsPlainWhereNoMomentsAreOfUse) {
  for (auto& v : moments_) v.assign(v.size(), 0.0f);
  Metric metric(plan_, shapes_, lossy_);
  ASSERT_TRUE(metric.Set(Spans()).ok());
  metric.BeginStep();
  EXPECT_TRUE(metric.is_plain());
}

TEST_F(MetricTest, HasAnotherNameWhenAMomentDiffers) {
  Metric metric(plan_, shapes_, lossy_);
  ASSERT_TRUE(metric.Set(Spans()).ok());
  const size_t b = BucketOf(3);
  const auto name = [&] {
    std::vector<float> values = Values(b);
    metric.BeginStep();
    return metric.Enter(b, values);
  };
  const uint16_t before = name();
  EXPECT_EQ(name(), before);
  moments_[3][57] = std::nextafter(moments_[3][57], 1e9f);  // spans are read in each step
  EXPECT_NE(name(), before);
  ASSERT_TRUE(metric.Set({}).ok());
  EXPECT_EQ(name(), 0);
}

TEST_F(MetricTest, ConvertsTheSameWhileValuesAreCopied) {
  Metric metric(plan_, shapes_, lossy_);
  ASSERT_TRUE(metric.Set(Spans()).ok());
  metric.BeginStep();
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const std::vector<float> from = Values(b);
    std::vector<float> in_place = from, copied(from.size()), back(from.size());
    const uint16_t name = metric.Enter(b, in_place);
    const auto slots = plan_.buckets[b].slots;
    for (size_t s = slots.size(); s-- > 0;) {  // gradients come in any order
      const size_t p = slots[s].parameter, offset = slots[s].offset;
      metric.CopyIn(p, std::span(from).subspan(offset, shapes_[p].elements), &copied[offset]);
    }
    EXPECT_EQ(metric.Name(b), name);
    EXPECT_EQ(copied, in_place);
    for (const auto& [p, offset] : slots) {
      metric.CopyOut(p, std::span(copied).subspan(offset, shapes_[p].elements), &back[offset]);
    }
    metric.Leave(b, in_place);
    EXPECT_EQ(back, in_place);
    EXPECT_EQ(from, Values(b));
  }
}

// The mean of so many is that of a sample.
TEST(MetricOfALargeParameter, DividesByTheRootOfTheMomentsToo) {
  constexpr size_t kManyValues = 100003;
  const std::vector<ParameterShape> shapes{{"large", kManyValues, 2, 1}};
  const BucketPlan plan = PlanBuckets(shapes, {}).value();
  Metric metric(plan, shapes, {true});
  std::vector<float> v(kManyValues), values(kManyValues, 1.0f);
  for (size_t i = 0; i < kManyValues; ++i) v[i] = i % 100 == 99 ? 0.0f : 4.0f;
  ASSERT_TRUE(metric.Set({v}).ok());
  metric.BeginStep();
  (void)metric.Enter(0, values);
  for (size_t i = 0; i < kManyValues; ++i) {
    if (i % 100 == 99) {
      ASSERT_NEAR(values[i], 1 / std::sqrt(4e-6 * .99), 25) << i;
    } else {
      ASSERT_NEAR(values[i], .5, .02) << i;
    }
  }
  metric.Leave(0, values);
  for (const float back : values) ASSERT_NEAR(back, 1, 2e-6);
}

TEST_F(MetricTest, RefusesMomentsThatDoNotFit) {
  Metric metric(plan_, shapes_, lossy_);
  SecondMoments moments = Spans();
  moments.pop_back();
  EXPECT_EQ(metric.Set(moments).code(), StatusCode::kInvalidArgument);
  moments.push_back(std::span<const float>(moments_[3]).first(99));
  const Status status = metric.Set(moments);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("99 second moments of c"), std::string::npos);
}

}  // namespace
}  // namespace elastiquant
