// Says whose state it is. What a worker remembers fits that worker alone: another one's would
// be sent twice, and what a codec of another kind remembers means something else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/layers/sections.h"

namespace elastiquant {

// The worker, the job's size and the model that a state belongs to.
struct StateIdentity {
  struct Layer {
    std::string name;
    size_t elements = 0;
    std::string codec;  // spec
    // The order of its dimensions in memory, which what is remembered lies in, in any words;
    // "" if that order is always the same, or nothing is remembered.
    std::string order = "";
  };
  int rank = 0;
  int world_size = 1;
  std::vector<Layer> layers;  // one for each parameter, in any order
};

// Returns the identity of a worker whose parameters travel under these specs, one for each.
StateIdentity MakeStateIdentity(int rank, int world_size,
                                std::span<const ParameterShape> shapes,
                                std::span<const std::string> specs);

// Returns the identity as a section of a checkpoint, in JSON.
std::vector<uint8_t> IdentitySection(const StateIdentity& identity);

// Fails with CorruptData if the section is no identity, or another one than `mine`. The message
// then names the first thing that differs, with both values, and says what to do.
Status CheckIdentity(std::span<const uint8_t> section, const StateIdentity& mine);

// The section that has the identity among the others of a worker's state.
inline constexpr char kIdentitySection[] = "identity";

// Takes that section out of the others. Fails as CheckIdentity does, and if it is missing.
Status TakeIdentity(const StateIdentity& mine, Sections* sections);

}  // namespace elastiquant
