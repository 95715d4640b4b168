// `models`: what can be given to --model.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "elastiquant/cli/command.h"
#include "elastiquant/models/model.h"

namespace elastiquant::cli {
namespace {

void PrintJson() {
  nlohmann::ordered_json models;
  for (const ModelInfo& info : ListModels()) models[info.name] = info.parameters;
  fmt::print("{}\n", models.dump(2));
}

void PrintText() {
  fmt::print("{:<18} {:>10}  {:>7}\n", "name", "parameters", "classes");
  for (const ModelInfo& info : ListModels()) {
    fmt::print("{:<18} {:>10}  {:>7}  {}\n", info.name, info.parameters, info.options.classes,
               info.description);
  }
  fmt::print("\nParameters are counted with the number of classes shown.\n");
}

constexpr char kModelsExample[] =
    "  elastiquant models\n"
    "  elastiquant models --json";

}  // namespace

Command MakeModelsCommand(CLI::App& program) {
  auto json = std::make_shared<bool>(false);
  CLI::App* app = AddSubcommand(program, "models", "List models and their parameter counts",
                                kModelsExample);
  app->add_flag("--json", *json, "Print a JSON object of names and numbers of parameters");
  return {app, [json] {
            *json ? PrintJson() : PrintText();
            return Status::Ok();
          }};
}

}  // namespace elastiquant::cli
