#include "elastiquant/layers/memory_units.h"

#include <cmath>
#include <string>
#include <utility>

namespace elastiquant {

Status MemoryUnits::Set(std::vector<double> units) {
  if (units.size() != units_.size()) {
    return InvalidArgument(std::to_string(units.size()) + " units for " +
                           std::to_string(units_.size()) + " parameters");
  }
  for (const double unit : units) {
    if (!(unit >= 0) || !std::isfinite(unit)) {
      return InvalidArgument("a learning rate, or the inverse of a loss scale, is " +
                             std::to_string(unit) + "; it must be finite and not negative");
    }
  }
  units_ = std::move(units);
  return {};
}

Status MemoryUnits::SetOfMemory(std::vector<double> units) {
  if (units.size() != memory_.size()) {
    return CorruptData("there are " + std::to_string(units.size()) +
                       " units of what is remembered of " + std::to_string(memory_.size()) +
                       " parameters");
  }
  for (const double unit : units) {
    if (!(unit > 0) || !std::isfinite(unit)) {
      return CorruptData("the unit of what is remembered is " + std::to_string(unit) +
                         "; it must be finite and positive");
    }
  }
  memory_ = std::move(units);
  return {};
}

void MemoryUnits::BeforeStep(LayerReduction& layers) {
  for (size_t p = 0; p < units_.size(); ++p) {
    if (units_[p] == 0 || units_[p] == memory_[p]) continue;
    layers.RescaleMemory(p, memory_[p] / units_[p]);
    memory_[p] = units_[p];
  }
}

void MemoryUnits::InStep(LayerReduction& layers) {
  held_.clear();
  for (size_t p = 0; p < units_.size(); ++p) {
    if (units_[p] != 0) continue;
    layers.KeepMemory(p);
    held_.push_back(p);
  }
}

void MemoryUnits::AfterStep(LayerReduction& layers) {
  for (const size_t p : held_) layers.RestoreMemory(p);
}

}  // namespace elastiquant
