// What a worker saves of its gossip, as sections of its checkpoint.
#pragma once

#include "elastiquant/base/status.h"
#include "elastiquant/layers/sections.h"
#include "elastiquant/protocol/gossip/state.h"

namespace elastiquant {

// Returns these sections, where NAME is what GossipState calls a field:
//   "memory/gossip/NAME"  floats
//   "step/gossip/NAME"    a count, of 8 bytes
//   "step/round"          the round, of 8 bytes
//   "units/push-sum"      the weight of push-sum, a double
Sections SectionsOfGossip(const GossipState& state);

// The reverse. Fails with CorruptData, which names the section, if one is missing or damaged or
// is none of these. Whether the fields are those of the algorithm is for the exchange to say
// that loads them.
Result<GossipState> ReadGossip(const Sections& sections);

}  // namespace elastiquant
