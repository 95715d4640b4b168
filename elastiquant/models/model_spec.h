// The name of a model, with parameters behind it: "gpt:layers=4,width=128".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "elastiquant/base/status.h"

namespace elastiquant {

struct ModelSpec {
  std::string name;                           // "gpt"
  std::map<std::string, int64_t> parameters;  // those that were given
};

// Parses NAME[:KEY=NUMBER,...]. Fails with kInvalidArgument for anything else.
Result<ModelSpec> ParseModelSpec(std::string_view text);

// Returns `defaults` with the parameters of the spec in their places. Fails with
// kInvalidArgument, which lists the valid ones, if there is no such parameter, or if a value is
// below 1.
Result<std::map<std::string, int64_t>> WithDefaults(const ModelSpec& spec,
                                                    std::map<std::string, int64_t> defaults);

}  // namespace elastiquant
