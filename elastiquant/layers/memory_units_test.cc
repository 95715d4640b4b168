#include "elastiquant/layers/memory_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kSize = 40;
const std::vector<ParameterShape> kScaledShapes{{"a", kSize, 2}, {"b", kSize, 2}};

// Two parameters under top-k with error feedback, on one worker.
struct ScaledLayers {
  explicit ScaledLayers(Communicator& comm)
      : plan(PlanBuckets(kScaledShapes, {.bucket_elements = 2 * kSize}).value()),
        gradient(plan.buckets.at(0).elements) {
    LayerBuckets buckets{plan, kScaledShapes, {gradient}, {"topk"}};
    const auto choose = [](size_t, std::shared_ptr<const Codec> codec) {
      return ChooseExchange(std::move(codec), nullptr, "codec", 1);
    };
    reduction = LayerReduction::Make(&comm, std::move(buckets),
                                     {{"topk", MakeCodec("topk:ratio=0.25|ef").value()}},
                                     {ReducerOptions{}, choose})
                    .value();
  }
  void Step(uint64_t step, MemoryUnits& units) {
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 7) - 2.5f;
    units.BeforeStep(*reduction);
    ASSERT_TRUE(reduction->BeginStep(step).ok());
    units.InStep(*reduction);
    ASSERT_TRUE(reduction->MarkReady(0).ok());
    ASSERT_TRUE(reduction->Finish().ok());
    units.AfterStep(*reduction);
  }
  std::vector<float> Residual(const std::string& parameter) const {
    Sections sections;
    reduction->SaveMemory(&sections);
    const std::vector<uint8_t>& bytes = sections.at("memory/residual/" + parameter);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  BucketPlan plan;
  std::vector<float> gradient;
  std::unique_ptr<LayerReduction> reduction;
};

// A job of one worker after its first step, which has left something to remember.
void AfterOneStep(const std::function<void(ScaledLayers& layers, MemoryUnits& units)>& test) {
  RunWorld(WorldOptions(1), [&](Communicator& comm) {
    ScaledLayers layers(comm);
    MemoryUnits units(2);
    layers.Step(0, units);
    test(layers, units);
  });
}

std::vector<float> Times(float factor, std::vector<float> values) {
  for (float& v : values) v *= factor;
  return values;
}

TEST(MemoryUnits, WhatIsRememberedIsConvertedWhenAUnitChanges) {
  AfterOneStep([](ScaledLayers& layers, MemoryUnits& units) {
    const std::vector<float> a = layers.Residual("a"), b = layers.Residual("b");
    EXPECT_THAT(b, testing::Contains(testing::Ne(0.0f)));

    ASSERT_TRUE(units.Set({1, 0.25}).ok());
    EXPECT_THAT(units.of_memory(), Each(1)) << "before the next step it is as it was";
    units.BeforeStep(*layers.reduction);
    EXPECT_EQ(layers.Residual("a"), a);
    EXPECT_EQ(layers.Residual("b"), Times(4, b));
    EXPECT_THAT(units.of_memory(), ElementsAre(1, 0.25));
    units.BeforeStep(*layers.reduction);
    EXPECT_EQ(layers.Residual("b"), Times(4, b)) << "only once";
  });
}

TEST(MemoryUnits, WhatIsNotAppliedIsNotRemembered) {
  AfterOneStep([](ScaledLayers& layers, MemoryUnits& units) {
    const std::vector<float> a = layers.Residual("a"), b = layers.Residual("b");
    ASSERT_TRUE(units.Set({0, 1}).ok());
    layers.Step(1, units);
    EXPECT_EQ(layers.Residual("a"), a);
    EXPECT_NE(layers.Residual("b"), b);
    // The memory keeps its unit while nothing is applied.
    ASSERT_TRUE(units.Set({0.5, 1}).ok());
    units.BeforeStep(*layers.reduction);
    EXPECT_EQ(layers.Residual("a"), Times(2, a));
  });
}

TEST(MemoryUnits, OthersThanFiniteOnesAreRefused) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  MemoryUnits units(2);
  EXPECT_THAT(units.Set({1}).message(), HasSubstr("1 units for 2 parameters"));
  for (const double bad : {-1.0, kInfinity, kNan}) {
    EXPECT_EQ(units.Set({1, bad}).code(), StatusCode::kInvalidArgument) << bad;
  }
  for (const double bad : {0.0, -1.0, kInfinity, kNan}) {
    EXPECT_EQ(units.SetOfMemory({1, bad}).code(), StatusCode::kCorruptData) << bad;
  }
  EXPECT_EQ(units.SetOfMemory({1, 2, 3}).code(), StatusCode::kCorruptData);
  EXPECT_THAT(units.of_memory(), ElementsAre(1, 1));
  ASSERT_TRUE(units.SetOfMemory({2, 3}).ok());
  EXPECT_THAT(units.of_memory(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace elastiquant
