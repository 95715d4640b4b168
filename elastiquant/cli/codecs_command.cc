// `codecs`: what can be given to --codec, and what each codec promises.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "elastiquant/base/json_number.h"
#include "elastiquant/cli/codec_bench.h"
#include "elastiquant/cli/codec_catalogue.h"
#include "elastiquant/cli/command.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant::cli {
namespace {

struct ListedCodec {
  const CodecInfo* info;
  CodecFacts facts;
};

Result<std::vector<ListedCodec>> AllCodecs() {
  const std::vector<float> gaussian = GaussianVector(kFactsElements, 1);
  std::vector<ListedCodec> list;
  for (const CodecInfo& info : ListCodecs()) {
    EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(info.spec));
    list.push_back({&info, FactsOf(*codec, gaussian)});
  }
  return list;
}

nlohmann::ordered_json ToJson(const std::vector<CodecParameter>& parameters) {
  auto list = nlohmann::ordered_json::array();
  for (const CodecParameter& parameter : parameters) {
    list.push_back({{"name", parameter.name},
                    {"default", parameter.default_value},
                    {"help", parameter.help}});
  }
  return list;
}

// omega or delta by n; null where no bound is known.
nlohmann::ordered_json BoundsJson(const CodecFacts& facts, bool contractive) {
  auto bounds = nlohmann::ordered_json::object();
  for (const auto& [n, bound] : facts.nmse_bounds) {
    bounds[std::to_string(n)] = contractive ? 1 - bound : bound;
  }
  return bounds.empty() ? nlohmann::ordered_json(nullptr) : bounds;
}

nlohmann::ordered_json ToJson(const ListedCodec& codec) {
  const auto& [info, facts] = codec;
  nlohmann::ordered_json json = {{"name", info->name},
                                 {"spec", info->spec},
                                 {"class", CodecClassName(info->codec_class)},
                                 {"summary", info->summary}};
  if (info->codec_class == CodecClass::kContractive) {
    json["delta"] = BoundsJson(facts, true);
  } else {
    json["omega"] = BoundsJson(facts, false);
  }
  json["nominal_bits"] = NumberOrNull(facts.nominal_bits);
  json["worst_case_bits"] = facts.worst_case_bits;
  json["elements"] = kFactsElements;
  json["collective"] = ExchangeName(facts.exchange);
  json["state"] = facts.state;
  json["momentum"] = facts.has_momentum;
  json["parameters"] = ToJson(info->parameters);
  json["modifiers"] = info->modifiers;
  return json;
}

void PrintJson(const std::vector<ListedCodec>& codecs) {
  auto list = nlohmann::ordered_json::array();
  for (const ListedCodec& codec : codecs) list.push_back(ToJson(codec));
  fmt::print("{}\n", list.dump(2));
}

void PrintModifiersJson() {
  auto list = nlohmann::ordered_json::array();
  for (const CodecModifierInfo& info : ListCodecModifiers()) {
    list.push_back({{"name", info.name},
                    {"summary", info.summary},
                    {"parameters", ToJson(info.parameters)}});
  }
  fmt::print("{}\n", list.dump(2));
}

// "omega 0.31", "delta 0.002"; of the longest message.
std::string BoundText(const ListedCodec& codec) {
  const auto& bounds = codec.facts.nmse_bounds;
  if (bounds.empty()) return "-";
  const double bound = bounds.back().second;
  const bool contractive = codec.info->codec_class == CodecClass::kContractive;
  return contractive ? fmt::format("delta {:.2g}", 1 - bound)
                     : fmt::format("omega {:.2g}", bound);
}

void PrintTable(const std::vector<ListedCodec>& codecs) {
  size_t width = 0;
  for (const ListedCodec& codec : codecs) width = std::max(width, codec.info->name.size());
  const auto row = [&](const auto&... cell) {
    fmt::print("{:<{}}  {:<11}  {:>13}  {:>6}  {:>6}  {:<10}  {}\n", cell...);
  };
  row("codec", width, "class", "bound", "bits", "most", "collective", "state");
  for (const ListedCodec& codec : codecs) {
    const CodecFacts& facts = codec.facts;
    row(codec.info->name, width, CodecClassName(codec.info->codec_class), BoundText(codec),
        facts.nominal_bits ? fmt::format("{:.3g}", *facts.nominal_bits) : "-",
        fmt::format("{:.3g}", facts.worst_case_bits), ExchangeName(facts.exchange),
        facts.state.empty() ? "-" : fmt::format("{}", fmt::join(facts.state, ", ")));
  }
  fmt::print(
      "\nbound: on E|Q(v)-v|^2/|v|^2 = omega = 1 - delta, for {} values of any kind; bits: a\n"
      "coordinate of as many Gaussian values, frame header included; most: of any values.\n",
      kFactsElements);
}

void PrintParameters(const std::vector<CodecParameter>& parameters) {
  for (const CodecParameter& parameter : parameters) {
    fmt::print("    {:<20} {}\n", parameter.name + "=" + parameter.default_value,
               parameter.help);
  }
}

void PrintModifiers() {
  for (const CodecModifierInfo& info : ListCodecModifiers()) {
    fmt::print("\n|{}\n  {}\n", info.name, info.summary);
    PrintParameters(info.parameters);
  }
}

void PrintText(const std::vector<ListedCodec>& codecs) {
  PrintTable(codecs);
  for (const auto& [info, facts] : codecs) {
    fmt::print("\n{}\n  {}\n  --codec '{}'\n", info->name, info->summary, info->spec);
    PrintParameters(info->parameters);
    for (const std::string& modifier : info->modifiers) fmt::print("    |{}\n", modifier);
  }
  fmt::print("\nAfter any codec and its own modifiers:\n");
  PrintModifiers();
}

constexpr char kCodecsExample[] =
    "  elastiquant codecs\n"
    "  elastiquant codecs --json\n"
    "  elastiquant codecs --modifiers --json";

}  // namespace

Command MakeCodecsCommand(CLI::App& program) {
  auto json = std::make_shared<bool>(false);
  auto modifiers = std::make_shared<bool>(false);
  CLI::App* app = AddSubcommand(
      program, "codecs", "List codecs, what they promise, and their keys", kCodecsExample);
  app->add_flag("--json", *json, "Print a JSON list");
  app->add_flag("--modifiers", *modifiers,
                "List what may follow any codec, in place of the codecs");
  return {app, [json, modifiers]() -> Status {
            if (*modifiers) {
              *json ? PrintModifiersJson() : PrintModifiers();
              return Status::Ok();
            }
            EQ_ASSIGN_OR_RETURN(const std::vector<ListedCodec> codecs, AllCodecs());
            *json ? PrintJson(codecs) : PrintText(codecs);
            return Status::Ok();
          }};
}

}  // namespace elastiquant::cli
