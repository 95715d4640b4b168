// Spec strings have the form name[:key=value[,key=value...]][|modifier[:key=value,...]]...
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// A codec or one of its modifiers: a name and its key=value pairs.
struct SpecPart {
  std::string name;
  std::vector<std::pair<std::string, std::string>> pairs;  // in the order given, keys unique
};
struct Spec {
  SpecPart codec;
  std::vector<SpecPart> modifiers;
};

// Parses a spec string. Names and keys are [a-z0-9_-]+, and values are anything without commas,
// bars and white space.
Result<Spec> ParseSpec(std::string_view text);

// Returns the value of `key` in `part`, or `fallback` if it is not given.
std::string_view SpecValue(const SpecPart& part, std::string_view key,
                           std::string_view fallback);

// Whether a codec's levels follow the gradients during training (elastic/adapt.h), as those of
// `alq` and `amq` do.
bool HasAdaptedLevels(const SpecPart& codec);

// Returns the error of a key whose value is not valid. `owner` is what has the key, such as
// "codec 'laq'" or "modifier 'ef'", and `valid` lists the values that it may have.
Status BadValueOf(std::string_view owner, std::string_view key, std::string_view value,
                  std::string_view valid);
// The same of a codec's key: "codec 'orq': levels=4 is not valid; use 3, 5 or 9".
Status BadKey(const SpecPart& part, std::string_view key, std::string_view value,
              std::string_view valid);

}  // namespace elastiquant
