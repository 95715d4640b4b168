#include "elastiquant/train/runner.h"

#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/runners/all_reduce_runner.h"
#include "elastiquant/train/runners/data_runner.h"
#include "elastiquant/train/runners/delayed_runner.h"
#include "elastiquant/train/runners/gossip_runner.h"
#include "elastiquant/train/runners/lazy_runner.h"
#include "elastiquant/train/runners/local_runner.h"

namespace elastiquant {

Result<std::unique_ptr<Runner>> MakeRunner(const TrainOptions& options,
                                           const RunnerPlace& place, GradientDump* dump) {
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  if (TrainsAlone(options)) return LocalRunner::Make(options, place);
  if (algorithm.kind == AlgorithmKind::kDelayed) return DelayedRunner::Make(options, place);
  if (algorithm.kind == AlgorithmKind::kQuantisedData) return DataRunner::Make(options, place);
  if (algorithm.is_gossip()) return GossipRunner::Make(options, place);
  if (algorithm.is_lazy()) return LazyRunner::Make(options, place);
  return AllReduceRunner::Make(options, place, dump);
}

}  // namespace elastiquant
