// The rendezvous, at which the workers of a job find each other in the store, or find out why
// they cannot.
#pragma once

#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>

#include "elastiquant/base/status.h"
#include "elastiquant/net/call_within.h"
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
// options.connect_timeout and somebody has not come; on whoever comes later, too. The store may
// be left to a thread that still waits for it, as AskStore says.
Result<Meeting> Rendezvous(const std::shared_ptr<Store>& store,
                           const CommunicatorOptions& options);

// The error of whoever has waited for a store that does not answer.
Status StoreIsSilent(const CommunicatorOptions& options);

// Returns what `work` does, which asks the store where nobody watches this worker yet: a call
// would wait for ever for a store whose process is frozen. Fails with kUnavailable a few
// seconds after options.connect_timeout, and leaves a thread behind then. So `work` must own
// all that it uses.
template <class Work>
std::invoke_result_t<Work> AskStore(const CommunicatorOptions& options, Work work) {
  auto answer = CallWithin(options.connect_timeout + std::chrono::seconds(5), std::move(work));
  if (!answer) return StoreIsSilent(options);
  return std::move(*answer);
}

}  // namespace elastiquant
