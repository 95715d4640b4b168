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

// Fits levels to worker 0's own gradient of one step: to what it is before it is rounded. All
// workers get the same levels, so that a checkpoint of the run has them too. RunCodecs has
// one for each adaptive codec.
class LevelAdapter {
 public:
  // `every` is the number of steps from one adaptation to the next. If it is 0 they follow the
  // published schedule, IsAdaptationStep.
  LevelAdapter(Communicator* comm, int64_t every) : comm_(comm), every_(every) {}

  // Whether levels are fitted after step `step`, counted from 1.
  bool Due(int64_t step) const;
  // Takes a copy of a bucket of that step, on worker 0 alone. Must be called before the
  // all-reduce overwrites the bucket.
  void Capture(std::span<const float> bucket);
  // Collective. Returns the codec with new levels. Forgets what was captured.
  Result<std::shared_ptr<const Codec>> Adapt(const Codec& codec);
  void Forget() { captured_.clear(); }

 private:
  Communicator* comm_;
  int64_t every_;
  std::vector<std::vector<float>> captured_;
};

}  // namespace elastiquant
