// What is saved of a worker, as bytes by name, and the numbers that a section holds.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/status.h"

namespace elastiquant {

// Bytes by name, as a checkpoint has them.
using Sections = std::map<std::string, std::vector<uint8_t>>;

// Returns a section of one number. One of several is BytesOf(values).
template <typename T>
std::vector<uint8_t> SectionOf(T value) {
  return BytesOf(std::span<const T>(&value, 1));
}

// Returns the numbers of a section. Fails with CorruptData, which names the section, if it is
// missing or ends within a number.
template <typename T>
Result<std::vector<T>> ValuesIn(const Sections& sections, const std::string& name) {
  const auto found = sections.find(name);
  if (found == sections.end()) return CorruptData("section " + name + " is missing");
  const std::vector<uint8_t>& bytes = found->second;
  if (bytes.size() % sizeof(T) != 0) return CorruptData("section " + name + " is cut");
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// As ValuesIn, of a section that must hold exactly one number.
template <typename T>
Result<T> ValueIn(const Sections& sections, const std::string& name) {
  EQ_ASSIGN_OR_RETURN(const std::vector<T> values, ValuesIn<T>(sections, name));
  if (values.size() == 1) return values[0];
  return CorruptData("section " + name + " has " + std::to_string(values.size()) +
                     " numbers and should have one");
}

}  // namespace elastiquant
