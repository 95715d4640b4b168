// The rendezvous, at which the workers of a job find each other in the store, or find out why
// they cannot.
#pragma once

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/net/store.h"

namespace elastiquant {

// What the workers found out when they met.
struct Meeting {
  bool one_machine = false;  // all workers can reach each other by the loopback address
};

// Returns when every rank of the job is there. Fails with kInvalidArgument if two workers claim
// one rank or world sizes disagree, on the worker that finds this and on all that still wait
// for somebody. Fails with kUnavailable, on all that wait, once one of them has waited for its
// options.connect_timeout and somebody has not come; on whoever comes later, too.
Result<Meeting> Rendezvous(Store& store, const CommunicatorOptions& options);

}  // namespace elastiquant
