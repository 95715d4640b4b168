#include "elastiquant/models/model.h"

#include <torch/nn/modules/linear.h>

#include <functional>
#include <span>
#include <utility>

#include "elastiquant/models/convnet.h"
#include "elastiquant/models/init.h"
#include "elastiquant/models/model_spec.h"
#include "elastiquant/models/resnet.h"
#include "elastiquant/models/transformer.h"

namespace elastiquant {
namespace {

namespace nn = torch::nn;

int64_t PixelValues(const ModelOptions& options) {
  return options.channels * options.image_size * options.image_size;
}

// One linear layer: what a task is worth without hidden layers.
class LinearModel : public Model {
 public:
  explicit LinearModel(const ModelOptions& options)
      : fc_(register_module("fc", nn::Linear(PixelValues(options), options.classes))) {}

  at::Tensor Forward(const at::Tensor& images) override {
    return fc_->forward(images.contiguous().flatten(1));
  }

 private:
  nn::Linear fc_;
};

// Two hidden layers: trains in no time, for tests of everything around the model.
class Mlp : public Model {
 public:
  Mlp(const ModelOptions& options, int64_t width)
      : fc1_(register_module("fc1", nn::Linear(PixelValues(options), width))),
        fc2_(register_module("fc2", nn::Linear(width, width))),
        fc3_(register_module("fc3", nn::Linear(width, options.classes))) {}

  at::Tensor Forward(const at::Tensor& images) override {
    const at::Tensor x = fc1_->forward(images.contiguous().flatten(1)).relu_();
    return fc3_->forward(fc2_->forward(x).relu_());
  }

 private:
  nn::Linear fc1_, fc2_, fc3_;
};

Result<std::shared_ptr<Model>> MakeMlp(const ModelSpec& spec, const ModelOptions& options) {
  EQ_ASSIGN_OR_RETURN(const auto given, WithDefaults(spec, {{"width", 128}}));
  return std::shared_ptr<Model>(std::make_shared<Mlp>(options, given.at("width")));
}

struct Entry {
  std::string name;
  std::string description;
  ModelOptions options;  // of the publication
  int64_t parameters;    // with these
  int64_t smallest_image;
  // Without weights yet.
  std::function<Result<std::shared_ptr<Model>>(const ModelSpec&, const ModelOptions&)> make;
};

// Makes a model that has no parameters in its spec.
auto Plain(std::function<std::shared_ptr<Model>(const ModelOptions&)> make) {
  return [make = std::move(make)](const ModelSpec& spec,
                                  const ModelOptions& o) -> Result<std::shared_ptr<Model>> {
    EQ_RETURN_IF_ERROR(WithDefaults(spec, {}).status());
    return make(o);
  };
}

Entry Cifar(int64_t blocks, int64_t parameters) {
  const std::string layers = std::to_string(6 * blocks + 2);
  return {
      "resnet" + layers,
      layers + " layers in CIFAR form, shortcuts without parameters",
      {},
      parameters,
      8,
      Plain([blocks](const ModelOptions& o) { return MakeResNet(CifarResNet(blocks), o); })};
}

Entry ImageNet(int layers, int64_t parameters) {
  const std::string number = std::to_string(layers);
  return {"resnet" + number,
          number + " layers; stem by image size: ImageNet's from 64 pixels, else 3x3",
          {.classes = 1000, .channels = 3, .image_size = 224},
          parameters,
          8,
          Plain([layers](const ModelOptions& o) {
            const Stem stem = o.image_size < 64 ? Stem::k32Pixel : Stem::kImageNet;
            return MakeResNet(ImageNetResNet(layers, stem), o);
          })};
}

Entry WithStem(int layers, Stem stem, const ModelOptions& options, int64_t parameters) {
  const bool small = stem == Stem::k32Pixel;
  return {"resnet" + std::to_string(layers) + (small ? "-32px" : "-imagenet"),
          std::to_string(layers) +
              (small ? " layers, 3x3 stem for small images" : " layers, 7x7 stem and pooling"),
          options,
          parameters,
          small ? 8 : 32,
          Plain([=](const ModelOptions& o) {
            return MakeResNet(ImageNetResNet(layers, stem), o);
          })};
}

const std::vector<Entry>& Entries() {
  static const ModelOptions imagenet{.classes = 1000, .channels = 3, .image_size = 224};
  static const std::vector<Entry> entries = {
      {"linear", "one linear layer", {}, 30730, 1, Plain([](const ModelOptions& o) {
         return std::make_shared<LinearModel>(o);
       })},
      {"mlp", "two hidden layers: mlp:width=128", {}, 411146, 1, MakeMlp},
      {"cnn3",
       "two 5x5 convolutions and a hidden layer, as DAGC trains",
       {},
       235690,
       16,
       Plain(MakeCnn3)},
      {"vgg11",
       "VGG-11 for small images, with batch normalisation",
       {},
       9228362,
       8,
       Plain(MakeVgg11)},
      {"gpt",
       "language model on bytes: gpt:layers=4,width=128,heads=4,context=128",
       {},
       875264,
       1,
       [](const ModelSpec& spec, const ModelOptions&) { return MakeGpt(spec); }},
      {"vit",
       "vision transformer: vit:layers=6,width=128,heads=4,patch=4",
       {},
       1205642,
       1,
       MakeVit},
      Cifar(1, 75290),
      Cifar(3, 269722),
      Cifar(5, 464154),
      Cifar(7, 658586),
      Cifar(9, 853018),
      Cifar(18, 1727962),
      ImageNet(18, 11689512),
      ImageNet(34, 21797672),
      ImageNet(50, 25557032),
      WithStem(18, Stem::k32Pixel, {}, 11173962),
      WithStem(34, Stem::k32Pixel, {}, 21282122),
      WithStem(50, Stem::k32Pixel, {}, 23520842),
      WithStem(18, Stem::kImageNet, imagenet, 11689512),
      WithStem(34, Stem::kImageNet, imagenet, 21797672),
      WithStem(50, Stem::kImageNet, imagenet, 25557032),
  };
  return entries;
}

Status CheckOptions(const Entry& entry, const ModelOptions& options) {
  if (options.classes < 2) {
    return InvalidArgument("a model needs at least 2 classes, not " +
                           std::to_string(options.classes));
  }
  if (options.channels != 1 && options.channels != 3) {
    return InvalidArgument("images have 1 channel or 3, not " +
                           std::to_string(options.channels));
  }
  if (options.image_size < entry.smallest_image || options.image_size > 4096) {
    return InvalidArgument(entry.name + " takes images of " +
                           std::to_string(entry.smallest_image) + " to 4096 pixels, not " +
                           std::to_string(options.image_size));
  }
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<Model>> MakeModel(std::string_view text, const ModelOptions& options) {
  EQ_ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(text));
  std::string known;
  for (const Entry& entry : Entries()) {
    if (entry.name != spec.name) {
      known += (known.empty() ? "" : ", ") + entry.name;
      continue;
    }
    EQ_RETURN_IF_ERROR(CheckOptions(entry, options));
    EQ_ASSIGN_OR_RETURN(std::shared_ptr<Model> model, entry.make(spec, options));
    model->Initialise(options.seed);
    return model;
  }
  return InvalidArgument("unknown model \"" + spec.name + "\"; known are " + known);
}

Result<int64_t> ContextOf(std::string_view text) {
  EQ_ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(text));
  if (spec.name != "gpt") return 0;
  const auto given = spec.parameters.find("context");
  return given == spec.parameters.end() ? kDefaultContext : given->second;
}

void Model::Initialise(uint64_t seed) { InitialiseWeights(*this, seed); }

std::vector<ModelInfo> ListModels() {
  std::vector<ModelInfo> models;
  for (const Entry& entry : Entries()) {
    models.push_back({entry.name, entry.parameters, entry.options, entry.description});
  }
  return models;
}

int64_t CountParameters(const Model& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

}  // namespace elastiquant
