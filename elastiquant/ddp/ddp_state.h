// What a worker of DDP keeps in a checkpoint, so that a resumed run goes on as it would have.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/ddp/ddp_plan.h"
#include "elastiquant/layers/codec_memory.h"
#include "elastiquant/layers/run_codecs.h"
#include "elastiquant/layers/state_identity.h"

namespace elastiquant {

struct DdpState {
  uint64_t step = 0;                          // the number of steps made
  DdpLayout layout;                           // DDP's buckets; empty before the first step
  std::vector<double> units;                  // of what is remembered, by parameter
  std::map<std::string, std::string> fitted;  // as RunCodecs::Fitted returns it
  Sections memory;                            // as CodecMemory saves it
};

// The model, the worker and the codecs that a state must be of.
struct DdpStateOwner {
  std::span<const DdpParameter> parameters;
  int rank = 0, world_size = 1;
  const RunCodecs& codecs;

  StateIdentity Identity() const;
};

// Returns the state in sections: "identity", "step", "units", "layout", "codec/" with each spec
// whose levels are fitted, and those of the memory. Parameters of which nothing is remembered
// yet get the sections of an empty memory.
Sections SaveDdpState(DdpState state, const DdpStateOwner& owner);

// Reads what SaveDdpState returned. Fails with CorruptData, which names what differs from the
// owner, or the section that is missing or damaged.
Result<DdpState> ReadDdpState(Sections sections, const DdpStateOwner& owner);

}  // namespace elastiquant
