#include "elastiquant/layers/layer_reduction.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "elastiquant/codec/remembering.h"

namespace elastiquant {

LayerReduction::LayerReduction(Communicator* comm, LayerBuckets buckets,
                               const CodecsBySpec& codecs, LayerReductionOptions options)
    : comm_(comm),
      buckets_(std::move(buckets)),
      options_(std::move(options)),
      certificate_(buckets_.plan, buckets_.shapes),
      codecs_(codecs),
      metric_(buckets_.plan, buckets_.shapes, Lossy()) {}

Result<std::unique_ptr<LayerReduction>> LayerReduction::Make(Communicator* comm,
                                                             LayerBuckets buckets,
                                                             const CodecsBySpec& codecs,
                                                             LayerReductionOptions options) {
  std::unique_ptr<LayerReduction> made(
      new LayerReduction(comm, std::move(buckets), codecs, std::move(options)));
  EQ_RETURN_IF_ERROR(made->MakeReducer());
  if (made->options_.has_uncompressed) EQ_RETURN_IF_ERROR(made->MakeUncompressed());
  return made;
}

Status LayerReduction::MakeReducer() {
  const BucketPlan& plan = buckets_.plan;
  std::vector<GradientBucket> buckets;
  std::vector<std::vector<std::string>> fields;  // that each bucket's codec remembers
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    EQ_ASSIGN_OR_RETURN(ExchangeChoice choice, ChoiceOf(b, codecs_));
    fields.push_back(choice.codec->StateFields());
    buckets.push_back({.gradient = buckets_.gradients[b],
                       .codec = std::move(choice.codec),
                       .name = plan.buckets[b].name,
                       .exchange = choice.exchange,
                       .down = std::move(choice.down)});
    if (options_.ladder) buckets.back().ladder = options_.ladder(b);
  }
  ReducerOptions options = options_.reducer;
  options.on_measured = [this](MeasuredMessage m) {
    m.bucket += options_.first_bucket;
    (options_.certificate ? *options_.certificate : certificate_).Add(m);
    m.bucket -= options_.first_bucket;
    if (options_.reducer.on_measured) options_.reducer.on_measured(m);
  };
  const bool converts = options_.conversion == Conversion::kByReduction;
  if (converts || options_.on_mean) {
    options.on_reduced = [this, converts](size_t bucket, bool is_mean) {
      if (is_mean && options_.on_mean) options_.on_mean(bucket);
      if (is_mean && converts) metric_.Leave(bucket, buckets_.gradients[bucket]);
      if (options_.reducer.on_reduced) options_.reducer.on_reduced(bucket, is_mean);
    };
  }
  EQ_ASSIGN_OR_RETURN(reducer_, GradientReducer::Create(comm_, std::move(buckets), options));
  active_ = reducer_.get();
  memory_ = std::make_unique<CodecMemory>(plan, buckets_.shapes, std::move(fields), OwnWeight(),
                                          reducer_.get());
  return {};
}

// What this worker counts in the mean.
double LayerReduction::OwnWeight() const {
  const std::vector<double>& weights = options_.reducer.weights;
  if (weights.empty()) return 1.0 / comm_->world_size();
  return weights[static_cast<size_t>(comm_->rank())] /
         std::accumulate(weights.begin(), weights.end(), 0.0);
}

Status LayerReduction::MakeUncompressed() {
  EQ_ASSIGN_OR_RETURN(const std::shared_ptr<const Codec> fp32, MakeCodec("fp32"));
  std::vector<GradientBucket> buckets;
  buckets.reserve(buckets_.gradients.size());
  for (size_t b = 0; b < buckets_.gradients.size(); ++b) {
    buckets.push_back({.gradient = buckets_.gradients[b],
                       .codec = fp32,
                       .name = buckets_.plan.buckets[b].name});
  }
  ReducerOptions options = options_.reducer;
  options.measure_every = 0;  // nothing is lost
  EQ_ASSIGN_OR_RETURN(uncompressed_,
                      GradientReducer::Create(comm_, std::move(buckets), options));
  return {};
}

// By bucket: whether its codec loses anything.
std::vector<bool> LayerReduction::Lossy() const {
  std::vector<bool> lossy(buckets_.specs.size());
  for (size_t b = 0; b < lossy.size(); ++b) {
    lossy[b] = codecs_.at(buckets_.specs[b])->codec_class() != CodecClass::kLossless;
  }
  return lossy;
}

Result<ExchangeChoice> LayerReduction::ChoiceOf(size_t bucket,
                                                const CodecsBySpec& codecs) const {
  EQ_ASSIGN_OR_RETURN(ExchangeChoice choice,
                      options_.choose(bucket, codecs.at(buckets_.specs[bucket])));
  EQ_ASSIGN_OR_RETURN(
      choice.codec, CodecForShapes(std::move(choice.codec),
                                   TensorsOf(buckets_.plan.buckets[bucket], buckets_.shapes)));
  return choice;
}

Status LayerReduction::BeginStep(uint64_t step, bool uncompressed) {
  kept_.clear();
  active_ = uncompressed ? uncompressed_.get() : reducer_.get();
  is_in_metric_ = !uncompressed && options_.conversion == Conversion::kByOwner;
  if (!uncompressed) {
    is_flushed_ = false;
    metric_.BeginStep();
  }
  return active_->BeginStep(step);
}

Status LayerReduction::MarkReady(size_t bucket) {
  const bool compressed = active_ == reducer_.get();
  if (compressed && keep_zeros_) KeepZeros(bucket);
  uint16_t metric = 0;
  if (is_in_metric_) {
    metric = metric_.Name(bucket);
  } else if (compressed) {
    metric = metric_.Enter(bucket, buckets_.gradients[bucket]);
  }
  if (options_.before_sent) options_.before_sent(bucket);
  return active_->MarkReady(bucket, metric);
}

ReducerStats LayerReduction::TakeStats() {
  ReducerStats stats = reducer_->TakeStats();
  if (uncompressed_) stats += uncompressed_->TakeStats();
  // Where there is a metric, buckets that lose nothing are not in it: in their own units they
  // may count for more than all others.
  if (stats.squared_norm_in_metric > 0) {
    stats.squared_error = stats.squared_error_in_metric;
    stats.squared_norm = stats.squared_norm_in_metric;
  }
  return stats;
}

void LayerReduction::KeepZeros(size_t bucket) {
  for (const BucketSlot& slot : buckets_.plan.buckets[bucket].slots) {
    const auto values = buckets_.gradients[bucket].subspan(
        slot.offset, buckets_.shapes[slot.parameter].elements);
    if (std::ranges::all_of(values, [](float v) { return v == 0; })) {
      KeepMemory(slot.parameter);
    }
  }
}

void LayerReduction::RestoreMemory(size_t parameter) {
  const auto kept = kept_.find(parameter);
  if (kept == kept_.end()) return;
  memory_->PutBack(parameter, kept->second);
  is_flushed_ = false;
}

Status LayerReduction::LoadMemory(const Sections& sections) {
  is_flushed_ = false;
  kept_.clear();  // or RestoreMemory would overwrite what is loaded
  return memory_->Load(sections);
}

bool LayerReduction::FlipMemory() {
  is_flushed_ = false;
  return reducer_->FlipMemory();
}

bool LayerReduction::HoldsBack() const {
  return !is_flushed_ && std::ranges::any_of(codecs_, [](const auto& entry) {
    return !entry.second->StateFields().empty();
  });
}

void LayerReduction::BeginExactStep() {
  is_in_metric_ = false;
  kept_.clear();
  flushed_.assign(buckets_.plan.buckets.size(), {});
  flushes_ = HoldsBack();
  if (flushes_) metric_.BeginStep();
}

void LayerReduction::Flush(size_t b) {
  if (keep_zeros_) KeepZeros(b);
  const auto memory = reducer_->Memory(b);
  if (memory.empty()) return;
  flushed_[b].resize(memory.size());
  const Chunk owned = reducer_->OwnedChunk(b);
  const auto workers = static_cast<float>(comm_->world_size());
  std::vector<std::span<float>> fields;
  for (size_t f = 0; f < memory.size(); ++f) {
    std::vector<float>& field = flushed_[b][f];
    field.assign(memory[f].begin(), memory[f].end());
    // The mean's loss is in the mean's units, and here goes with one worker's values.
    for (float& v : std::span(field).subspan(owned.begin, owned.size)) v *= workers;
    fields.emplace_back(field);
  }
  // What is remembered is in the metric.
  (void)metric_.Enter(b, buckets_.gradients[b]);
  SendExactly(*codecs_.at(buckets_.specs[b]), buckets_.gradients[b], fields);
  metric_.Leave(b, buckets_.gradients[b]);
}

void LayerReduction::CommitFlushed() {
  // Only velocities go on without anything new.
  is_flushed_ = std::ranges::none_of(
      codecs_, [](const auto& entry) { return MomentumOf(*entry.second).has_value(); });
  for (size_t b = 0; b < flushed_.size(); ++b) {
    const auto memory = reducer_->Memory(b);
    const Chunk owned = reducer_->OwnedChunk(b);
    const auto workers = static_cast<float>(comm_->world_size());
    for (size_t f = 0; f < flushed_[b].size(); ++f) {
      std::vector<float>& field = flushed_[b][f];
      for (float& v : std::span(field).subspan(owned.begin, owned.size)) v /= workers;
      std::ranges::copy(field, memory[f].begin());
    }
  }
}

Status LayerReduction::UseCodecs(const CodecsBySpec& codecs) {
  const CodecsBySpec before = std::exchange(codecs_, codecs);
  for (size_t b = 0; b < buckets_.specs.size(); ++b) {
    const std::string& spec = buckets_.specs[b];
    if (codecs.at(spec) == before.at(spec)) continue;
    EQ_ASSIGN_OR_RETURN(ExchangeChoice choice, ChoiceOf(b, codecs));
    EQ_RETURN_IF_ERROR(reducer_->SetCodec(b, std::move(choice.codec)));
  }
  return {};
}

}  // namespace elastiquant
