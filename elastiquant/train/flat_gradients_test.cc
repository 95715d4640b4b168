#include "elastiquant/train/flat_gradients.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

namespace elastiquant {
namespace {

class FlatGradientsTest : public testing::Test {
 protected:
  FlatGradientsTest() {
    for (const auto& [name, rows] : {std::pair{"a", 3}, {"b", 5}}) {
      parameters_.push_back({name, at::ones({rows, 2}).requires_grad_(true)});
    }
    BucketPlan plan = PlanBuckets(ShapesOf(parameters_), {.scalars = 1}).value();
    gradients_ = std::make_unique<FlatGradients>(parameters_, std::move(plan), [](size_t) {});
    gradients_->Begin();
    gradients_->scalars()[0] = 1000;
    parameters_[0].tensor.sum().mul(3).add(parameters_[1].tensor.sum(), 4).backward();
  }
  double Norm() const {
    double squares = 0;
    for (const NamedTensor& p : parameters_)
      squares += p.tensor.grad().square().sum().item<double>();
    return std::sqrt(squares);
  }

  const double norm_ = std::sqrt(6 * 9 + 10 * 16);
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<FlatGradients> gradients_;
};

TEST_F(FlatGradientsTest, ClipsTheNormOfAllTogether) {
  gradients_->ClipNorm(0);
  EXPECT_NEAR(Norm(), norm_, 1e-4) << "no limit";
  gradients_->ClipNorm(100);
  EXPECT_NEAR(Norm(), norm_, 1e-4) << "below the limit";
  gradients_->ClipNorm(2);
  EXPECT_NEAR(Norm(), 2, 1e-5);
  EXPECT_NEAR(parameters_[1].tensor.grad()[0][0].item<double>(), 4 * 2 / norm_, 1e-5);
  EXPECT_EQ(gradients_->scalars()[0], 1000) << "no gradient";
}

}  // namespace
}  // namespace elastiquant
