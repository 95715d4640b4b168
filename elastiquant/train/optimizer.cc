#include "elastiquant/train/optimizer.h"

namespace elastiquant {

Result<std::unique_ptr<Optimizer>> MakeOptimizer(std::span<const NamedTensor> parameters,
                                                 const TrainOptions& options) {
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  if (algorithm.is_adam()) return MakeOneBitAdam(parameters, options, algorithm);
  if (algorithm.kind == AlgorithmKind::kDemo) return MakeDemo(parameters, options, algorithm);
  if (options.optimizer == "adamw") return MakeAdamW(parameters, options);
  return MakeSgd(parameters, options);
}

double WeightDecayOf(const at::Tensor& parameter, const TrainOptions& options) {
  return options.decay_1d || parameter.dim() > 1 ? options.weight_decay : 0;
}

}  // namespace elastiquant
