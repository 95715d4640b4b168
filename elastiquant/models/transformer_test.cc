#include "elastiquant/models/transformer.h"

#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace elastiquant {
namespace {

using testing::HasSubstr;

std::shared_ptr<Model> Make(const char* name) { return MakeModel(name, {.seed = 5}).value(); }

at::Tensor Bytes(int64_t batch, int64_t length) {
  at::manual_seed(3);  // or every run has other ones
  return at::randint(256, {batch, length}).to(at::kFloat);
}

TEST(Gpt, HasNanoGptsNamesAndParameters) {
  const auto model = Make("gpt:layers=2,width=32,heads=2,context=16");
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["transformer.wte.weight"].sizes(), (std::vector<int64_t>{256, 32}));
  EXPECT_EQ(parameters["transformer.wpe.weight"].sizes(), (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(parameters["transformer.h.1.attn.c_attn.weight"].size(0), 96);
  EXPECT_EQ(parameters["transformer.h.0.mlp.c_proj.weight"].sizes(),
            (std::vector<int64_t>{32, 128}));
  EXPECT_EQ(parameters["transformer.ln_f.bias"].numel(), 32);
  EXPECT_EQ(parameters["lm_head.weight"].sizes(), (std::vector<int64_t>{256, 32}));
}

TEST(Gpt, TellsTheNextByteFromThoseBefore) {
  const auto model = Make("gpt:layers=2,width=32,heads=2,context=16");
  const c10::InferenceMode guard;
  const at::Tensor inputs = Bytes(3, 17);
  const at::Tensor logits = model->Forward(inputs);
  EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{3 * 16, 256}));
  const at::Tensor targets = model->Targets(inputs, {});
  EXPECT_EQ(targets.sizes(), (std::vector<int64_t>{3 * 16}));
  EXPECT_EQ(targets[16].item<int64_t>(), inputs[1][1].item<int64_t>());
  // At first all bytes are about as likely.
  EXPECT_NEAR(at::cross_entropy_loss(logits, targets).item<double>(), std::log(256), 0.1);
  // What comes later makes no difference.
  at::Tensor other = inputs.clone();
  other[0][10] = inputs[0][10].item<int64_t>() < 128 ? 200 : 20;
  const at::Tensor changed = model->Forward(other);
  EXPECT_TRUE(changed.narrow(0, 0, 10).equal(logits.narrow(0, 0, 10)));
  EXPECT_FALSE(changed[10].equal(logits[10]));
  EXPECT_EQ(model->Forward(Bytes(1, 5)).size(0), 4) << "a shorter text";
}

TEST(Gpt, StartsFromItsSeed) {
  const auto deviation = [](const Model& model, const char* name) {
    return model.named_parameters()[name].std().item<double>();
  };
  const auto model = Make("gpt");
  EXPECT_NEAR(deviation(*model, "transformer.h.0.attn.c_attn.weight"), .02, .001);
  EXPECT_NEAR(deviation(*model, "transformer.h.0.attn.c_proj.weight"), .02 / std::sqrt(8),
              .001);
  const auto same = Make("gpt"), other = MakeModel("gpt", {.seed = 6}).value();
  const char* name = "transformer.wte.weight";
  EXPECT_TRUE(model->named_parameters()[name].equal(same->named_parameters()[name]));
  EXPECT_FALSE(model->named_parameters()[name].equal(other->named_parameters()[name]));
}

TEST(Gpt, ErrorsSayWhatDoesNotGoTogether) {
  const auto error = [](const char* name) { return MakeModel(name, {}).status().message(); };
  EXPECT_THAT(error("gpt:width=30"), HasSubstr("not a multiple of its 4 heads"));
  EXPECT_THAT(error("gpt:depth=2"), HasSubstr("it has context, heads, layers, width"));
  EXPECT_THAT(error("resnet20:layers=3"), HasSubstr("it has none"));
  EXPECT_THAT(error("vit:patch=5"), HasSubstr("cannot be cut into patches of 5"));
}

TEST(Gpt, SaysHowMuchTextItTakes) {
  EXPECT_EQ(ContextOf("gpt").value(), 128);
  EXPECT_EQ(ContextOf("gpt:context=64").value(), 64);
  EXPECT_EQ(ContextOf("resnet20").value(), 0);
}

TEST(Vit, ClassifiesImagesAndLearns) {
  at::manual_seed(3);
  const auto model = MakeModel("vit:layers=1,width=32,heads=2,patch=8", {}).value();
  const at::Tensor images = at::randn({8, 3, 32, 32}), labels = at::randint(10, {8});
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    const at::Tensor loss = at::cross_entropy_loss(model->Forward(images), labels);
    (step == 0 ? first : last) = loss.item<double>();
    model->zero_grad();
    loss.backward();
    const c10::NoGradGuard no_grad;
    for (at::Tensor& p : model->parameters()) p.sub_(p.grad(), .1);
  }
  EXPECT_LT(last, .7 * first);
}

}  // namespace
}  // namespace elastiquant
