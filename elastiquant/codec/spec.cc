#include "elastiquant/codec/spec.h"

#include <algorithm>

namespace elastiquant {
namespace {

constexpr std::string_view kSyntax =
    "; the form is name[:key=value,...][|modifier[:key=value,...]]";

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}
bool IsName(std::string_view s) { return !s.empty() && std::ranges::all_of(s, IsNameChar); }

std::string Quote(std::string_view s) { return "'" + std::string(s) + "'"; }

// Cuts the text before the first `separator` off the front of *rest. With no separator left
// all of it is cut off and *rest becomes null, which tells "nothing" from "empty".
std::string_view NextField(std::string_view* rest, char separator) {
  const size_t end = rest->find(separator);
  const std::string_view field = rest->substr(0, end);
  *rest = end == std::string_view::npos ? std::string_view() : rest->substr(end + 1);
  return field;
}

Result<std::pair<std::string, std::string>> ParsePair(std::string_view text,
                                                      std::string_view owner) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || !IsName(text.substr(0, equals)) ||
      equals + 1 == text.size()) {
    return InvalidArgument("codec spec: " + Quote(text) + " after " + Quote(owner) +
                           " is not key=value" + std::string(kSyntax));
  }
  return std::pair(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
}

Result<SpecPart> ParsePart(std::string_view text) {
  std::string_view rest = text;
  SpecPart part;
  part.name = NextField(&rest, ':');
  if (!IsName(part.name)) {
    return InvalidArgument("codec spec: " + Quote(part.name) +
                           " is not a name of a-z, 0-9, _ and -" + std::string(kSyntax));
  }
  while (rest.data() != nullptr) {
    EQ_ASSIGN_OR_RETURN(auto pair, ParsePair(NextField(&rest, ','), part.name));
    if (std::ranges::any_of(part.pairs, [&](const auto& p) { return p.first == pair.first; })) {
      return InvalidArgument("codec spec: key " + Quote(pair.first) + " of " +
                             Quote(part.name) + " is given twice");
    }
    part.pairs.push_back(std::move(pair));
  }
  return part;
}

bool IsSpaceOrControl(char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7F; }

}  // namespace

Result<Spec> ParseSpec(std::string_view text) {
  if (std::ranges::any_of(text, IsSpaceOrControl)) {
    return InvalidArgument("codec spec: white space is not allowed" + std::string(kSyntax));
  }
  // A view of "" may have a null pointer, which NextField takes for "nothing left".
  std::string_view rest = text.empty() ? std::string_view("", 0) : text;
  Spec spec;
  EQ_ASSIGN_OR_RETURN(spec.codec, ParsePart(NextField(&rest, '|')));
  while (rest.data() != nullptr) {
    EQ_ASSIGN_OR_RETURN(auto part, ParsePart(NextField(&rest, '|')));
    const auto same = [&](const SpecPart& m) { return m.name == part.name; };
    if (std::ranges::any_of(spec.modifiers, same)) {
      return InvalidArgument("codec spec: modifier " + Quote(part.name) + " is given twice");
    }
    spec.modifiers.push_back(std::move(part));
  }
  return spec;
}

std::string_view SpecValue(const SpecPart& part, std::string_view key,
                           std::string_view fallback) {
  for (const auto& [k, value] : part.pairs) {
    if (k == key) return value;
  }
  return fallback;
}

bool HasAdaptedLevels(const SpecPart& codec) {
  return codec.name == "alq" || codec.name == "amq";
}

Status BadValueOf(std::string_view owner, std::string_view key, std::string_view value,
                  std::string_view valid) {
  return InvalidArgument(std::string(owner) + ": " + std::string(key) + "=" +
                         std::string(value) + " is not valid; use " + std::string(valid));
}

Status BadKey(const SpecPart& part, std::string_view key, std::string_view value,
              std::string_view valid) {
  return BadValueOf("codec '" + part.name + "'", key, value, valid);
}

}  // namespace elastiquant
