#include "elastiquant/layers/fragments.h"

#include <gtest/gtest.h>

#include <vector>

namespace elastiquant {
namespace {

using Layers = std::vector<std::vector<size_t>>;
using Fragments = std::vector<size_t>;

Fragments Dealt(const std::vector<ParameterShape>& shapes, size_t fragments) {
  return BalancedFragments(shapes, fragments).value();
}

const std::vector<ParameterShape> kNorms{{"n.weight", 1, 1},    {"n.bias", 1, 1},
                                         {"conv.weight", 8, 4}, {"bn.weight", 2, 1},
                                         {"bn.bias", 2, 1},     {"fc.weight", 3, 2}};

TEST(FragmentsTest, ANormGoesWithTheLayerBeforeIt) {
  EXPECT_EQ(LayersOf(kNorms), (Layers{{0, 1, 2, 3, 4}, {5}}));
  EXPECT_EQ(LayersOf(std::vector<ParameterShape>{{"x.weight", 3, 1}, {"y.weight", 2, 1}}),
            (Layers{{0, 1}}));
  EXPECT_EQ(LayersOf({}), Layers{});
}

TEST(FragmentsTest, WhatTheModelItselfHasIsOneLayer) {
  const std::vector<ParameterShape> shapes{
      {"positions", 6, 2}, {"fc.weight", 6, 2}, {"scales", 4, 2}};
  EXPECT_EQ(LayersOf(shapes), (Layers{{0, 2}, {1}}));
}

TEST(FragmentsTest, AParametrisedWeightStaysWithItsBias) {
  const std::vector<ParameterShape> shapes{{"fc.bias", 4, 1},
                                           {"fc.parametrizations.weight.original0", 4, 2},
                                           {"fc.parametrizations.weight.original1", 12, 2},
                                           {"parametrizations.head.original", 9, 2},
                                           {"tail", 9, 2}};
  EXPECT_EQ(LayersOf(shapes), (Layers{{0, 1, 2}, {3, 4}}));
}

TEST(FragmentsTest, TheLargestLayersAreDealtFirst) {
  // From the largest on: c, a with its bias, b, d.
  const std::vector<ParameterShape> shapes{{"a.weight", 6, 2},
                                           {"a.bias", 1, 1},
                                           {"b.weight", 5, 2},
                                           {"c.weight", 9, 2},
                                           {"d", 2, 2}};
  EXPECT_EQ(Dealt(shapes, 1), Fragments(5, 0));
  EXPECT_EQ(Dealt(shapes, 2), (Fragments{1, 1, 1, 0, 0}));
  EXPECT_EQ(Dealt(shapes, 4), (Fragments{1, 1, 2, 0, 3}));
  EXPECT_EQ(Dealt(kNorms, 2), (Fragments{0, 0, 0, 0, 0, 1}));
}

TEST(FragmentsTest, EqualLayersAreDealtInTurn) {
  const std::vector<ParameterShape> shapes{
      {"a.w", 9, 2}, {"b.w", 9, 2}, {"c.w", 9, 2}, {"d.w", 9, 2}, {"e.w", 9, 2}};
  EXPECT_EQ(Dealt(shapes, 2), (Fragments{0, 1, 0, 1, 0}));
}

TEST(FragmentsTest, ThereAreNoMoreFragmentsThanLayers) {
  EXPECT_EQ(BalancedFragments(kNorms, 3).status().message(),
            "a model of 2 layers cannot be cut into 3 fragments");
  EXPECT_FALSE(BalancedFragments(kNorms, 0).ok());
  EXPECT_FALSE(BalancedFragments({}, 1).ok());
}

}  // namespace
}  // namespace elastiquant
