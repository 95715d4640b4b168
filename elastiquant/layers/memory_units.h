// The units of gradients, and of what codecs remember of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/layer_reduction.h"

namespace elastiquant {

// A parameter's unit says what a 1 in its gradient stands for, in units that never change: 1/S
// where the loss is scaled by S, or, where the codec has the learning rate in its memory
// (HasLearningRate), that over S. When the unit changes, what is remembered in the old one is
// converted. A unit of 0 says that nothing that is sent in this step will be applied, so that
// the memory stays as it is. All units are 1 at first.
//
// Each step calls BeforeStep, then LayerReduction::BeginStep or BeginExactStep, then InStep,
// and AfterStep when its gradients are averaged.
class MemoryUnits {
 public:
  explicit MemoryUnits(size_t parameters) : units_(parameters, 1.0), memory_(units_) {}

  // Sets the units from the next step on, by parameter. Fails with kInvalidArgument unless
  // there are as many as parameters, and all are finite and not negative.
  Status Set(std::vector<double> units);

  // Converts what is remembered of the parameters whose unit has changed.
  void BeforeStep(LayerReduction& layers);
  // Keeps a copy of what is remembered of the parameters whose unit is 0.
  void InStep(LayerReduction& layers);
  // Makes the memory of these parameters the copy again.
  void AfterStep(LayerReduction& layers);

  // Returns the units in which the memory is, by parameter: for checkpoints.
  std::span<const double> of_memory() const { return memory_; }
  // Takes up what of_memory returned. Fails with kCorruptData, and changes nothing, unless
  // there are as many as parameters, and all are finite and positive.
  Status SetOfMemory(std::vector<double> units);

 private:
  std::vector<double> units_, memory_;
  std::vector<size_t> held_;  // the parameters whose memory this step leaves alone
};

}  // namespace elastiquant
