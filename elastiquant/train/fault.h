// Makes faults on purpose, so that tests can see what a run does about them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

enum class FaultKind {
  kNan,    // the gradient is NaN
  kThrow,  // an exception, as libtorch throws them
  kQuit,   // the worker ends with exit code 0, as if the run were over
  kExit,   // the worker ends with exit code 9
  kKill,   // the worker is killed by SIGKILL
  kStop,   // the worker is stopped by SIGSTOP: it is there, but silent
  kHang,   // the worker lives, but gets on with nothing
  // One weight changes by its last bit on this worker alone; where each worker has a model of
  // its own, one of a neighbour's model as this worker knows it, just before that is checked.
  kDrift,
};

enum class FaultMoment {
  kStep,        // before the step
  kBackward,    // in backward of the step, with a bucket on its way
  kEvaluation,  // before the evaluation that follows the step
  kCheckpoint,  // before the checkpoint that follows the step is written
  kEnd,         // after the last step, when the others leave
};

struct Fault {
  FaultKind kind = FaultKind::kNan;
  int64_t step = 0;   // the first step, counted from 0, that it strikes
  int64_t times = 1;  // the number of steps in a row
  int rank = 0;
  FaultMoment moment = FaultMoment::kStep;

  bool Strikes(int64_t at_step, int at_rank) const {
    return at_rank == rank && at_step >= step && at_step < step + times;
  }
};

// Parses text such as "nan@step=5,rank=1;exit@step=9,at=backward". Semicolons separate faults;
// times=N repeats one; `at` is step, backward, evaluation, checkpoint or end. Fails with
// InvalidArgument, which names what is valid.
Result<std::vector<Fault>> ParseFaults(std::string_view text);

}  // namespace elastiquant
