#include "elastiquant/train/runner.h"

#include <utility>

#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/all_reduce_runner.h"

namespace elastiquant {

Result<std::unique_ptr<Runner>> MakeRunner(const TrainOptions& options,
                                           const RunnerPlace& place,
                                           std::unique_ptr<GradientDump> dump) {
  EQ_RETURN_IF_ERROR(ParseAlgorithm(options.algorithm).status());
  return AllReduceRunner::Make(options, place, std::move(dump));
}

}  // namespace elastiquant
