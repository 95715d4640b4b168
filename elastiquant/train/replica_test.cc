#include "elastiquant/train/replica.h"

#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

// A matrix and a bias, all 1 at first.
class Two : public Model {
 public:
  Two()
      : weight_(register_parameter("weight", at::ones({2, 3}))),
        bias_(register_parameter("bias", at::ones({2}))) {}
  at::Tensor Forward(const at::Tensor& images) override { return images; }

 private:
  at::Tensor weight_, bias_;
};

struct Values {
  double weight, bias;
};

// After so many steps at a rate of .5 with gradients of 1.
Values After(int steps, const TrainOptions& options) {
  const auto replica = Replica::Make(std::make_shared<Two>(), options).value();
  for (int step = 0; step < steps; ++step) {
    for (const NamedTensor& p : replica->parameters()) {
      at::Tensor parameter = p.tensor;
      parameter.mutable_grad() = at::ones_like(p.tensor);
    }
    replica->optimizer().Step(.5);
  }
  Values values{};
  for (const NamedTensor& p : replica->parameters()) {
    (p.name == "bias" ? values.bias : values.weight) = p.tensor.flatten()[0].item<double>();
  }
  return values;
}

TrainOptions Options() {
  TrainOptions options;
  options.weight_decay = 0;
  options.momentum = .5;
  return options;
}

// Worker r has seen this mean and this variance of each channel.
class Normalised : public Model {
 public:
  explicit Normalised(float mean, float variance = 1)
      : weight_(register_parameter("weight", at::ones({2}))),
        mean_(register_buffer("running_mean", at::full({2}, mean))),
        variance_(register_buffer("running_var", at::full({2}, variance))),
        count_(register_buffer("num_batches_tracked", at::full({}, int64_t{7}))) {}
  at::Tensor Forward(const at::Tensor& images) override { return images; }

 private:
  at::Tensor weight_, mean_, variance_, count_;
};

// The variance of all batches together is that within the workers', and that of their means.
TEST(Replica, AveragesStatisticsAsThoseOfAllBatchesTogether) {
  for (const std::vector<double>& weights :
       {std::vector<double>{}, std::vector<double>{3, 1, 0}}) {
    RunWorld(WorldOptions(3), [&](Communicator& comm) {
      const auto replica =
          Replica::Make(std::make_shared<Normalised>(static_cast<float>(comm.rank())),
                        Options())
              .value();
      ASSERT_TRUE(replica->AverageBuffers(comm, weights).ok());
      std::map<std::string, double> is;
      for (const NamedTensor& t : replica->State()) is[t.name] = t.tensor.max().item<double>();
      const double mean = weights.empty() ? 1 : .25;
      EXPECT_NEAR(is["running_mean"], mean, 1e-6);
      EXPECT_NEAR(is["running_var"], 1 + (weights.empty() ? 2. / 3 : .25 * .75), 1e-6);
      EXPECT_EQ(is["num_batches_tracked"], 7);
    });
  }
}

// The square of this mean is so large that what rounding leaves of it is beyond the epsilon of
// a batch norm, and below 0, of which a batch norm would make NaN.
TEST(Replica, AveragesStatisticsToNoVarianceBelowZero) {
  RunWorld(WorldOptions(3), [&](Communicator& comm) {
    const auto replica =
        Replica::Make(std::make_shared<Normalised>(4e6F / 3, 0.F), Options()).value();
    ASSERT_TRUE(replica->AverageBuffers(comm, {}).ok());
    std::map<std::string, double> is;
    for (const NamedTensor& t : replica->State()) is[t.name] = t.tensor.min().item<double>();
    EXPECT_EQ(is.at("running_var"), 0);
  });
}

TEST(Replica, MovesByMomentum) {
  const Values values = After(2, Options());
  EXPECT_NEAR(values.weight, 1 - .5 * (1 + 1.5), 1e-6);
  EXPECT_NEAR(values.bias, values.weight, 1e-6);
}

TEST(Replica, WhatStaysExactUnderDgcKeepsItsMomentum) {
  TrainOptions options = Options();
  options.momentum = 0;
  options.codec = "dgc:momentum=0.5";
  Values values = After(2, options);
  EXPECT_NEAR(values.weight, 1 - .5 * 2, 1e-6) << "its velocity is in what is sent";
  EXPECT_NEAR(values.bias, 1 - .5 * (1 + 1.5), 1e-6);
  options.codec = "dgc:momentum=0.5,nesterov=yes";
  EXPECT_NEAR(After(2, options).bias, 1 - .5 * (1.5 + 1.75), 1e-6);
  options.exact = "none";
  EXPECT_NEAR(After(2, options).bias, 1 - .5 * 2, 1e-6);
  options.codec = "topk|ef";
  options.exact = "1d";
  EXPECT_NEAR(After(2, options).bias, 1 - .5 * 2, 1e-6) << "as it was asked for";
}

TEST(Replica, AddsTheGradientToTheMomentumAsPowerSgdIsPublished) {
  TrainOptions options = Options();
  options.update = "powersgd";
  Values values = After(2, options);
  EXPECT_NEAR(values.weight, 1 - .5 * ((1 + 1) + (1 + 1.5)), 1e-6);
  EXPECT_NEAR(values.bias, values.weight, 1e-6);
  options.weight_decay = .25;
  options.decay_1d = false;
  values = After(2, options);
  const double first = 1.25, after_first = 1 - .5 * 2 * first;
  const double second = 1 + .25 * after_first, momentum = .5 * first + second;
  EXPECT_NEAR(values.weight, after_first - .5 * (second + momentum), 1e-6);
  EXPECT_NEAR(values.bias, 1 - .5 * (2 + 2.5), 1e-6);
}

// m = .9 m + .1 g and v = .99 v + .01 g^2 are 1 after their corrections if all g are, so that
// every step is lr / (1 + eps) = .5 / 1.25, after a decay by lr * .1.
TEST(Replica, MovesByAdamWithDecoupledDecay) {
  TrainOptions options;
  options.optimizer = "adamw";
  options.beta2 = .99;
  options.epsilon = .25;
  options.weight_decay = .1;
  options.decay_1d = false;
  const Values values = After(2, options);
  const double first = 1 * (1 - .05) - .4;
  EXPECT_NEAR(values.weight, first * (1 - .05) - .4, 1e-6);
  EXPECT_NEAR(values.bias, 1 - 2 * .4, 1e-6);
}

TEST(Replica, GoesOnAsAdamDidWhereItWasSaved) {
  TrainOptions options;
  options.optimizer = "adamw";
  const auto step = [](Replica& replica, float gradient) {
    for (const NamedTensor& p : replica.parameters()) {
      at::Tensor parameter = p.tensor;
      parameter.mutable_grad() = at::ones_like(p.tensor).mul_(gradient);
    }
    replica.optimizer().Step(.1);
  };
  const auto first = Replica::Make(std::make_shared<Two>(), options).value();
  EXPECT_EQ(first->second_moments().size(), 2u);
  EXPECT_EQ(first->second_moments()[0][0], 0);
  step(*first, 1);
  step(*first, -3);
  Checkpoint checkpoint;
  first->Save(&checkpoint);
  EXPECT_TRUE(checkpoint.tensors.contains("optimizer.exp_avg.weight"));
  EXPECT_TRUE(checkpoint.tensors.contains("optimizer.exp_avg_sq.bias"));
  EXPECT_TRUE(checkpoint.tensors.contains("optimizer.step"));
  const auto second = Replica::Make(std::make_shared<Two>(), options).value();
  const SecondMoments moments = second->second_moments();
  ASSERT_TRUE(second->Load(checkpoint).ok());
  EXPECT_GT(moments[0][0], 0) << "they stay where they are";
  step(*first, .5);
  step(*second, .5);
  EXPECT_EQ(first->Hash(), second->Hash());
  checkpoint.tensors.erase("optimizer.step");
  EXPECT_EQ(second->Load(checkpoint).code(), StatusCode::kCorruptData);
}

TEST(Replica, SavesTheMomentumThatThereIs) {
  TrainOptions options = Options();
  options.momentum = 0;
  options.codec = "dgc";
  Checkpoint checkpoint;
  const auto replica = Replica::Make(std::make_shared<Two>(), options).value();
  replica->Save(&checkpoint);
  EXPECT_TRUE(checkpoint.tensors.contains("optimizer.momentum.bias"));
  EXPECT_FALSE(checkpoint.tensors.contains("optimizer.momentum.weight"));
  EXPECT_TRUE(replica->Load(checkpoint).ok());
}

}  // namespace
}  // namespace elastiquant
