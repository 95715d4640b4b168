// Lets the workers of a run end together when something goes wrong on one of them.
#pragma once

#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// Each worker of a run has one, and passes the errors on which the run ends through it. An
// error whose message is empty is one that another worker explains.
class Agreement {
 public:
  explicit Agreement(Communicator* comm) : comm_(comm) {}

  // Collective. An error on any worker becomes an error on all. The lowest worker's is the one
  // that is told, unless others fail with another code: they tell theirs.
  Status Agree(const Status& mine);
  // Takes an error that every worker has found alike: worker 0 tells it.
  Status Known(const Status& status);
  // Whether one of these two has returned an error. Then no worker need be told any more.
  bool on_error() const { return on_error_; }

 private:
  Communicator* comm_;
  bool on_error_ = false;
};

// Collective. Returns worker 0's text, on all workers.
Result<std::string> ShareText(Communicator& comm, std::string text);

}  // namespace elastiquant
