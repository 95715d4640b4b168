// `codecs`: what can be given to --codec.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "elastiquant/cli/command.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant::cli {
namespace {

nlohmann::ordered_json ToJson(const CodecInfo& info) {
  auto parameters = nlohmann::ordered_json::array();
  for (const CodecParameter& parameter : info.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"default", parameter.default_value},
                          {"help", parameter.help}});
  }
  return {{"name", info.name},
          {"spec", info.spec},
          {"class", CodecClassName(info.codec_class)},
          {"summary", info.summary},
          {"parameters", parameters},
          {"modifiers", info.modifiers}};
}

void PrintJson() {
  auto list = nlohmann::ordered_json::array();
  for (const CodecInfo& info : ListCodecs()) list.push_back(ToJson(info));
  fmt::print("{}\n", list.dump(2));
}

void PrintText() {
  for (const CodecInfo& info : ListCodecs()) {
    fmt::print("{}  ({})\n  {}\n", info.name, CodecClassName(info.codec_class), info.summary);
    fmt::print("  --codec '{}'\n", info.spec);
    for (const CodecParameter& parameter : info.parameters) {
      fmt::print("    {:<20} {}\n", parameter.name + "=" + parameter.default_value,
                 parameter.help);
    }
    for (const std::string& modifier : info.modifiers) fmt::print("    |{}\n", modifier);
    fmt::print("\n");
  }
}

constexpr char kExample[] =
    "  elastiquant codecs\n"
    "  elastiquant codecs --json";

}  // namespace

Command MakeCodecsCommand(CLI::App& program) {
  auto json = std::make_shared<bool>(false);
  CLI::App* app =
      AddSubcommand(program, "codecs", "List codecs, their parameters and defaults", kExample);
  app->add_flag("--json", *json, "A JSON list of objects");
  return {app, [json] {
            *json ? PrintJson() : PrintText();
            return Status::Ok();
          }};
}

}  // namespace elastiquant::cli
