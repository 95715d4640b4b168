// What workers tell each other when they have formed a new group (net/crew/crew.h), so that
// they go on from the same place: the one that is furthest hands on the model that all share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/train/replica.h"
#include "elastiquant/train/round_runner.h"

namespace elastiquant {

struct Reunion {
  int source = 0;                   // the rank of the worker that is furthest
  uint64_t furthest = 0;            // the milestone that it has reached
  std::vector<int> newcomers = {};  // their ranks
  nlohmann::json news = nullptr;    // what the source tells of the run
};

// Collective. Finds the worker that is furthest of those that are no newcomers, the first in
// rank if there are several. All get what it gives as `news`. Fails with Unavailable if all are
// newcomers.
Result<Reunion> Reunite(Communicator& comm, uint64_t reached, bool is_newcomer,
                        const nlohmann::json& news);

// Collective. The shared model becomes the source's. Newcomers get the source's inner optimiser
// and running statistics too, so that they need not begin with none. A worker on which this
// fails is as it was.
Status HandOn(Communicator& comm, const Reunion& reunion, bool is_newcomer, Replica& replica,
              RoundRunner& runner);

}  // namespace elastiquant
