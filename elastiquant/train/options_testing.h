// Options of training for tests that change one of them.
#pragma once

#include <string>

#include "elastiquant/train/train_options.h"

namespace elastiquant {

inline TrainOptions Valid() {
  TrainOptions options;
  options.codec = "fp32";
  return options;
}

inline std::string ErrorOf(const TrainOptions& options) {
  return ValidateOptions(options).message();
}

}  // namespace elastiquant
