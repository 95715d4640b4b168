// Deals a run's steps to workers that differ in speed. Each takes the next one as soon as it is
// ready for it, so that slow workers make fewer and nobody waits for them.
#pragma once

#include <cstdint>
#include <future>
#include <optional>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// N workers make N steps in each step of the run. Not thread-safe.
class StepPool {
 public:
  // `first` is the step of the run, counted from 0, that the workers begin with. The
  // communicator must outlive the pool, and no other pool may be on it.
  StepPool(Communicator* comm, int64_t first) : comm_(comm), first_(first) {}

  // Returns the step of the run that this worker's next step is of. The same until Take. Fails
  // as Communicator::TakeNumber does.
  Result<int64_t> Next();
  // Takes that step, and asks for the one after while it is made: asking takes a delay of the
  // network.
  void Take();
  // Returns how many steps all workers have taken from this worker's last but one to its last.
  uint64_t taken_since() const { return taken_since_; }

 private:
  void Ask();

  Communicator* const comm_;
  const int64_t first_;
  std::optional<uint64_t> number_;  // of the next step, once it is known
  std::future<Result<uint64_t>> asked_;
  uint64_t taken_ = 0;  // steps of all, up to this worker's last
  uint64_t taken_since_ = 0;
};

}  // namespace elastiquant
