// Fits the levels of an adaptive codec (alq, amq) to the gradients of a run, now and then.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// Worker 0's own gradient of one step is what the levels are fitted to: before it is rounded,
// and the same levels for all workers, so that a checkpoint of the run has them too.
class LevelAdapter {
 public:
  // every: steps from one adaptation to the next; 0: IsAdaptationStep, the published schedule.
  LevelAdapter(Communicator* comm, int64_t every) : comm_(comm), every_(every) {}

  // Whether levels are fitted after step `step`, counted from 1.
  bool Due(int64_t step) const;
  // Worker 0: a bucket of that step, before the all-reduce overwrites it. Others do nothing.
  void Capture(std::span<const float> bucket);
  // Collective: the codec with new levels. Forgets what was captured.
  Result<std::shared_ptr<const Codec>> Adapt(const Codec& codec);
  void Forget() { captured_.clear(); }

 private:
  Communicator* comm_;
  int64_t every_;
  std::vector<std::vector<float>> captured_;
};

}  // namespace elastiquant
