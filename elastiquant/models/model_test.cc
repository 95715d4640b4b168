#include "elastiquant/models/model.h"

#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>

namespace elastiquant {
namespace {

std::shared_ptr<Model> Make(std::string_view name, const ModelOptions& options = {}) {
  auto model = MakeModel(name, options);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return model.ok() ? *model : nullptr;
}

TEST(ModelTest, ParameterCountsAreThePublishedOnes) {
  const std::map<std::string, int64_t> published = {
      {"resnet20", 269722},   {"resnet32", 464154},   {"resnet44", 658586},
      {"resnet56", 853018},   {"resnet110", 1727962}, {"resnet18", 11689512},
      {"cnn3", 235690},       {"resnet34", 21797672}, {"resnet18-32px", 11173962},
      {"resnet50", 25557032},
  };
  size_t found = 0;
  for (const ModelInfo& info : ListModels()) {
    EXPECT_EQ(CountParameters(*Make(info.name, info.options)), info.parameters) << info.name;
    auto entry = published.find(info.name);
    if (entry == published.end()) continue;
    EXPECT_EQ(info.parameters, entry->second) << info.name;
    ++found;
  }
  EXPECT_EQ(found, published.size());
}

TEST(ModelTest, AnMlpHasHiddenLayersOfTheWidthGiven) {
  const int64_t pixels = 3 * 32 * 32;
  EXPECT_EQ(CountParameters(*Make("mlp:width=4")), (pixels + 1) * 4 + 5 * 4 + 5 * 10);
  EXPECT_FALSE(MakeModel("mlp:width=0", {}).ok());
}

TEST(ModelTest, StemFollowsTheImageSize) {
  EXPECT_EQ(CountParameters(*Make("resnet18")), 11173962);
  const auto small = Make("resnet18", {.classes = 10, .image_size = 224});
  EXPECT_EQ(small->named_parameters()["conv1.weight"].size(2), 7);
}

TEST(ModelTest, ForwardGivesLogitsForEveryShape) {
  for (const ModelInfo& info : ListModels()) {
    // The large ones differ from these only in their numbers of blocks.
    if (info.parameters > 12000000 && info.name != "resnet50-32px") continue;
    if (ContextOf(info.name).value() > 0) continue;  // of text
    for (const int64_t channels : {1, 3}) {
      ModelOptions options{.classes = 7, .channels = channels, .image_size = 32};
      const auto model = Make(info.name, options);
      const at::Tensor logits = model->Forward(at::ones({2, channels, 32, 32}));
      EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{2, 7})) << info.name;
      EXPECT_TRUE(logits.isfinite().all().item<bool>()) << info.name;
    }
  }
}

TEST(ModelTest, ResultDoesNotDependOnTheMemoryFormatOfTheInput) {
  at::manual_seed(1);
  const at::Tensor images = at::randn({2, 3, 32, 32});
  for (const char* name : {"linear", "mlp", "resnet20"}) {
    const auto model = Make(name);
    const at::Tensor a = model->Forward(images);
    const at::Tensor b = model->Forward(images.contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(a.equal(b)) << name;
  }
}

TEST(ModelTest, WeightsAreAFunctionOfTheSeed) {
  for (const char* name : {"linear", "mlp", "cnn3", "vgg11", "resnet20"}) {
    const auto one = Make(name, {.seed = 5}), same = Make(name, {.seed = 5});
    const auto other = Make(name, {.seed = 6});
    for (const auto& item : one->named_parameters()) {
      EXPECT_TRUE(item.value().equal(same->named_parameters()[item.key()])) << item.key();
    }
    const std::string first = one->named_parameters().front().key();
    EXPECT_FALSE(one->named_parameters()[first].equal(other->named_parameters()[first]));
  }
}

TEST(ModelTest, ParametersAreContiguousNamedAndInForwardOrder) {
  const auto model = Make("resnet20");
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters.front().key(), "conv1.weight");
  EXPECT_EQ(parameters[3].key(), "layer1.0.conv1.weight");
  EXPECT_EQ(parameters.back().key(), "fc.bias");
  for (const auto& parameter : parameters) {
    EXPECT_TRUE(parameter->is_contiguous()) << parameter.key();
    EXPECT_EQ(parameter->scalar_type(), at::kFloat) << parameter.key();
  }
}

TEST(ModelTest, GradientsReachViewsOfAFlatBuffer) {
  const auto model = Make("resnet20");
  at::Tensor flat = at::zeros({CountParameters(*model)});
  int64_t offset = 0;
  for (at::Tensor& parameter : model->parameters()) {
    parameter.mutable_grad() =
        flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    offset += parameter.numel();
  }
  at::manual_seed(1);
  const at::Tensor labels = at::zeros({4}, at::kLong);
  at::cross_entropy_loss(model->Forward(at::randn({4, 3, 32, 32})), labels).backward();
  offset = 0;
  for (const auto& parameter : model->named_parameters()) {
    EXPECT_EQ(parameter->grad().data_ptr<float>(), flat.data_ptr<float>() + offset)
        << parameter.key();
    EXPECT_GT(parameter->grad().abs().sum().item<float>(), 0.0f) << parameter.key();
    offset += parameter->numel();
  }
}

TEST(ModelTest, SeedDeterminesTheWeights) {
  const auto a = Make("resnet20", {.seed = 1})->parameters();
  const auto b = Make("resnet20", {.seed = 1})->parameters();
  const auto c = Make("resnet20", {.seed = 2})->parameters();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i]));
  EXPECT_FALSE(a[0].equal(c[0]));
}

TEST(ModelTest, ConvolutionsStartWithHeVariance) {
  for (const auto& parameter : Make("resnet18", {.seed = 3})->named_parameters()) {
    if (parameter->dim() != 4 || parameter->numel() < 30000) continue;
    const double fan_out = static_cast<double>(parameter->numel() / parameter->size(1));
    EXPECT_NEAR(parameter->var().item<double>() * fan_out, 2.0, 0.05) << parameter.key();
    EXPECT_NEAR(parameter->mean().item<double>() * std::sqrt(fan_out), 0.0, 0.05)
        << parameter.key();
  }
}

TEST(ModelTest, BadNamesAndOptionsAreExplained) {
  const auto unknown = MakeModel("resnet21", {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("resnet20"), std::string::npos);
  EXPECT_EQ(MakeModel("resnet20", {.classes = 1}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeModel("resnet20", {.channels = 2}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeModel("resnet20", {.image_size = 4}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace elastiquant
