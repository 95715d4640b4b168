// How the workers of a run end together when something goes wrong on one of them.
#pragma once

#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// An error whose message is empty is one that another worker explains.
class Agreement {
 public:
  explicit Agreement(Communicator* comm) : comm_(comm) {}

  // Collective: an error on any worker becomes an error on all. The lowest worker's is the one
  // that is told, unless others fail differently.
  Status Agree(const Status& mine);
  // An error that every worker found alike: worker 0 tells it.
  Status Known(const Status& status);
  // An error that came of these two: no worker need be told any more.
  bool on_error() const { return on_error_; }

 private:
  Communicator* comm_;
  bool on_error_ = false;
};

// Collective: worker 0's text, on all.
Result<std::string> ShareText(Communicator& comm, std::string text);

}  // namespace elastiquant
