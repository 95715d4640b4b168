// How the workers of a job find each other in the store, or find out why they cannot.
#pragma once

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/net/store.h"

namespace elastiquant {

struct Meeting {
  bool one_machine = false;  // all workers can reach each other by the loopback address
};

// Returns when every rank of the job is there. Fails on all workers if two claim one rank or
// world sizes disagree, and after options.connect_timeout if somebody has not come.
Result<Meeting> Rendezvous(Store& store, const CommunicatorOptions& options);

}  // namespace elastiquant
