#include "elastiquant/train/codecs/own_codecs.h"

#include <cmath>
#include <utility>

#include "elastiquant/codec/codec.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/own_state.h"

namespace elastiquant {
namespace {

constexpr char kPolicy[] = "policy";  // section of a checkpoint

}  // namespace

Result<std::unique_ptr<OwnCodecs>> OwnCodecs::Make(const TrainOptions& options,
                                                   const Communicator& comm,
                                                   const std::vector<double>& weights,
                                                   const BucketPlan& plan, int64_t rounds) {
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  const bool is_sparse = algorithm.kind == AlgorithmKind::kSparsity;
  if (!is_sparse && options.bits_policy.empty()) return std::unique_ptr<OwnCodecs>();
  std::unique_ptr<OwnCodecs> own(new OwnCodecs);
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    own->places_.push_back(plan.buckets[b].exact ? kExact : own->buckets_.size());
    if (plan.buckets[b].exact) continue;
    own->buckets_.push_back(b);
    own->groups_.push_back(plan.buckets[b].name);
  }
  const auto world = static_cast<size_t>(comm.world_size());
  WorkerCodecsOptions codecs{.algorithm = options.algorithm,
                             .bits_policy = options.bits_policy,
                             .ratio = RatioOf(options),
                             .codec = nullptr,
                             .volumes = weights,
                             .rank = static_cast<size_t>(comm.rank()),
                             .two_phase = false,
                             .steps = rounds,
                             .buckets = own->buckets_.size()};
  if (codecs.volumes.empty()) codecs.volumes = std::vector<double>(world, 1);
  EQ_ASSIGN_OR_RETURN(codecs.codec, MakeCodec(options.codec));
  EQ_ASSIGN_OR_RETURN(const ExchangeChoice choice,
                      ExchangeOf(options, codecs.codec, comm.world_size()));
  codecs.two_phase = choice.way() == Exchange::kTwoPhase;
  EQ_ASSIGN_OR_RETURN(own->codecs_, WorkerCodecs::Make(codecs));
  return own;
}

void OwnCodecs::AddTo(LayerReductionOptions* options,
                      std::function<std::span<const float>(size_t bucket)> values) {
  values_ = std::move(values);
  options->ladder = [this](size_t b) {
    return is_own(b) ? codecs_->Ladder() : std::vector<std::shared_ptr<const Codec>>();
  };
  options->on_mean = [this](size_t b) {
    if (is_own(b)) codecs_->OnMean(places_[b], values_(b));
  };
  options->reducer.on_measured = [this](const MeasuredMessage& m) {
    if (is_own(m.bucket)) codecs_->OnMeasured(places_[m.bucket], m);
  };
}

Status OwnCodecs::UseIn(LayerReduction* layers) const {
  for (const size_t b : buckets_) {
    EQ_RETURN_IF_ERROR(layers->SetOwnCodec(b, codecs_->CodecOf(places_[b])));
  }
  return {};
}

Status OwnCodecs::Foresee(LayerReduction* layers) {
  double squares = 0;
  for (const size_t b : buckets_) squares += SumSquares(values_(b).data(), values_(b).size());
  EQ_RETURN_IF_ERROR(codecs_->Foresee(std::sqrt(squares)));
  return UseIn(layers);
}

void OwnCodecs::BeforeSent(size_t bucket, std::span<const float> values,
                           std::span<const std::span<float>> remembered) {
  if (is_own(bucket)) codecs_->BeforeSent(places_[bucket], values, remembered);
}

Result<nlohmann::json> OwnCodecs::EndRound(std::span<const float> scalars, const StepSeen& seen,
                                           LayerReduction* layers) {
  EQ_RETURN_IF_ERROR(codecs_->EndStep(scalars, seen));
  EQ_RETURN_IF_ERROR(UseIn(layers));
  return seen.is_void ? nlohmann::json() : codecs_->Decisions();
}

void OwnCodecs::Save(Checkpoint* checkpoint) const {
  SaveDoubles(kPolicy, codecs_->SaveState(), checkpoint);
}

Status OwnCodecs::Load(const Checkpoint& checkpoint, LayerReduction* layers) {
  EQ_ASSIGN_OR_RETURN(const std::vector<double> state, LoadDoubles(checkpoint, kPolicy));
  EQ_RETURN_IF_ERROR(codecs_->LoadState(state));
  return UseIn(layers);
}

}  // namespace elastiquant
