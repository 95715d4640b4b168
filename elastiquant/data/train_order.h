// In which order one worker reads the training split.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "elastiquant/data/loader.h"

namespace elastiquant {

// Plans batch after batch, as TrainLoader promises. It is not thread-safe.
class TrainOrder {
 public:
  // The options and the start are those of a TrainLoader, which has checked them. `samples` are
  // those of the split.
  static std::unique_ptr<TrainOrder> Make(int64_t samples, const LoaderOptions& options,
                                          LoaderPosition start);
  virtual ~TrainOrder() = default;

  virtual std::vector<PlannedSample> NextBatch() = 0;
};

}  // namespace elastiquant
