// A data set for one worker, who may read its own share of the training split only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "elastiquant/data/dataset.h"

namespace elastiquant {

// Returns `dataset`, of whose training split only the samples given can be read: reading
// another one, or its label, fails with OutOfRange. The test split stays as it is. Fails with
// InvalidArgument if a sample is not in the training split.
Result<std::shared_ptr<const Dataset>> OwnShareOf(std::shared_ptr<const Dataset> dataset,
                                                  std::span<const int64_t> samples);

}  // namespace elastiquant
