#include "elastiquant/models/flops.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace elastiquant {
namespace {

double FlopsOf(const char* name, int64_t batch, ModelOptions options = {}) {
  const auto model = MakeModel(name, options).value();
  return ForwardFlops(
      *model, at::randn({batch, options.channels, options.image_size, options.image_size}));
}

TEST(FlopsTest, ALinearLayerHasTwoForEachWeight) {
  EXPECT_EQ(FlopsOf("linear", 1), 2 * 3072 * 10);
  EXPECT_EQ(FlopsOf("linear", 7), 7 * 2 * 3072 * 10);
}

// He et al., "Deep Residual Learning for Image Recognition": table 1 counts multiply-adds.
TEST(FlopsTest, ResNetsHaveThoseOfThePaper) {
  const ModelOptions imagenet{.classes = 1000, .channels = 3, .image_size = 224};
  EXPECT_NEAR(FlopsOf("resnet34-imagenet", 1, imagenet) / 2, 3.6e9, .1e9);
  EXPECT_NEAR(FlopsOf("resnet20", 1) / 2, 40.8e6, 1e6);
}

TEST(FlopsTest, TheModelStaysAsItWas) {
  const auto model = MakeModel("resnet20", {}).value();
  const at::Tensor before = model->buffers()[0].clone();
  ForwardFlops(*model, at::randn({2, 3, 32, 32}));
  EXPECT_TRUE(model->is_training());
  EXPECT_TRUE(model->buffers()[0].equal(before));
}

}  // namespace
}  // namespace elastiquant
