// Times steps for Payoff. The workers agree on what a step has taken, so that all make the same
// choice.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/ddp/payoff.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

class PayoffClock {
 public:
  struct Options {
    // Whether steps may be sent uncompressed at all.
    bool enabled = false;
    // Whether uncompressed steps use the network that compressed messages use.
    bool shares_link = true;
    // Returns what the last step shall count as having taken, for tests; if null, what it took.
    std::function<double(bool exact)> step_seconds = nullptr;
  };

  explicit PayoffClock(Options options);

  // Must be called when a step begins. Collective where the steps are timed. `was_exact` says
  // whether the last step went uncompressed, and `sent_by_all_reduce` how many bytes an
  // all-reduce of its gradients sends.
  Status BeginStep(Communicator& comm, bool was_exact, double sent_by_all_reduce);
  // Leaves the step that has begun out of the account.
  void Forget() { has_begun_ = false; }
  // Whether to send the step uncompressed that begins.
  bool exact() const { return payoff_.exact(); }
  std::string TakeNotice() { return payoff_.TakeNotice(); }

 private:
  const Options options_;
  Payoff payoff_;
  bool has_begun_ = false;
  Stopwatch since_begin_;
  Traffic at_begin_;
};

}  // namespace elastiquant
