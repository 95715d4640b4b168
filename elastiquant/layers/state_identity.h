// Whose state it is. What a worker remembers fits that worker alone: another one's would be
// sent twice, and what a codec of another kind remembers means something else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

struct StateIdentity {
  struct Layer {
    std::string name;
    size_t elements = 0;
    std::string codec;  // spec
  };
  int rank = 0;
  int world_size = 1;
  std::vector<Layer> layers;  // of all parameters, in any order
};

// As a section of a checkpoint: JSON.
std::vector<uint8_t> IdentitySection(const StateIdentity& identity);

// Errors: CorruptData for a section that is none, and for another identity than `mine`: it
// names the first thing that differs, with both values, and says what to do.
Status CheckIdentity(std::span<const uint8_t> section, const StateIdentity& mine);

}  // namespace elastiquant
