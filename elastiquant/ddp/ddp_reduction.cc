#include "elastiquant/ddp/ddp_reduction.h"

#include <algorithm>
#include <utility>

#include "elastiquant/codec/error_feedback.h"

namespace elastiquant {
namespace {

std::vector<ParameterShape> ShapesOf(std::span<const DdpParameter> parameters) {
  std::vector<ParameterShape> shapes;
  for (const DdpParameter& p : parameters) shapes.push_back(p.shape);
  return shapes;
}

}  // namespace

Result<ExchangeChoice> DdpExchange::Choose(const std::string& spec,
                                           std::shared_ptr<const Codec> codec,
                                           int world_size) const {
  const auto back = down.find(spec);
  const bool lossless = codec->codec_class() == CodecClass::kLossless;
  return ChooseExchange(std::move(codec), back == down.end() ? nullptr : back->second,
                        lossless ? "codec" : asked, world_size);
}

DdpReduction::DdpReduction(Communicator* comm, DdpLayout layout, DdpPlan plan,
                           std::span<const DdpParameter> parameters,
                           DdpReductionOptions options)
    : comm_(comm),
      layout_(std::move(layout)),
      plan_(std::move(plan)),
      options_(std::move(options)),
      shapes_(ShapesOf(parameters)),
      staging_(plan_, parameters),
      certificate_(plan_.plan, shapes_) {
  for (const PlannedBucket& bucket : plan_.plan.buckets) coordinates_ += bucket.elements;
}

Result<std::unique_ptr<DdpReduction>> DdpReduction::Make(
    Communicator* comm, DdpLayout layout, std::span<const DdpParameter> parameters,
    const CodecsBySpec& codecs, DdpReductionOptions options) {
  EQ_ASSIGN_OR_RETURN(DdpPlan plan, PlanDdp(layout, parameters, options.bucket_elements));
  std::unique_ptr<DdpReduction> made(new DdpReduction(comm, std::move(layout), std::move(plan),
                                                      parameters, std::move(options)));
  made->codecs_ = codecs;
  EQ_ASSIGN_OR_RETURN(made->reducer_, made->MakeReducer());
  std::vector<std::vector<std::string>> fields;
  for (const std::string& spec : made->plan_.codecs) {
    fields.push_back(codecs.at(spec)->StateFields());
  }
  made->memory_ =
      std::make_unique<CodecMemory>(made->plan_.plan, made->shapes_, std::move(fields),
                                    comm->world_size(), made->reducer_.get());
  return made;
}

Result<std::unique_ptr<GradientReducer>> DdpReduction::MakeReducer() {
  std::vector<GradientBucket> buckets;
  for (size_t b = 0; b < plan_.plan.buckets.size(); ++b) {
    EQ_ASSIGN_OR_RETURN(ExchangeChoice choice, ChoiceOf(b, codecs_));
    buckets.push_back({.gradient = staging_.bucket(b),
                       .codec = std::move(choice.codec),
                       .name = plan_.plan.buckets[b].name,
                       .exchange = choice.exchange,
                       .down = std::move(choice.down)});
  }
  ReducerOptions options = options_.reducer;
  options.on_reduced = options_.on_reduced;
  options.on_measured = [this](const MeasuredMessage& m) { certificate_.Add(m); };
  return GradientReducer::Create(comm_, std::move(buckets), options);
}

Result<ExchangeChoice> DdpReduction::ChoiceOf(size_t bucket, const CodecsBySpec& codecs) const {
  const std::string& spec = plan_.codecs[bucket];
  EQ_ASSIGN_OR_RETURN(ExchangeChoice choice,
                      options_.exchange.Choose(spec, codecs.at(spec), comm_->world_size()));
  EQ_ASSIGN_OR_RETURN(
      choice.codec,
      CodecForShapes(std::move(choice.codec), TensorsOf(plan_.plan.buckets[bucket], shapes_)));
  return choice;
}

Status DdpReduction::BeginStep(uint64_t step) {
  staging_.Begin();
  kept_.clear();
  is_empty_ = false;
  return reducer_->BeginStep(step);
}

Status DdpReduction::Send(size_t bucket) {
  options_.before_sent(bucket);
  if (keep_zeros_) KeepZeros(bucket);
  return reducer_->MarkReady(bucket);
}

void DdpReduction::BeginExactStep() {
  staging_.Begin();
  kept_.clear();
  flushed_.assign(plan_.plan.buckets.size(), {});
  flushes_ = !is_empty_ && std::ranges::any_of(codecs_, [](const auto& entry) {
    return !entry.second->StateFields().empty();
  });
}

Status DdpReduction::Flush(size_t d, const at::Tensor& gradients) {
  const std::vector<size_t>& parts = plan_.parts[d];
  const bool remembers =
      std::ranges::any_of(parts, [&](size_t b) { return !reducer_->Memory(b).empty(); });
  if (!remembers || !flushes_) return {};
  EQ_RETURN_IF_ERROR(staging_.Arrive(d, gradients));
  for (const size_t b : parts) {
    if (keep_zeros_) KeepZeros(b);
    FlushBucket(b);
    staging_.Return(b, /*is_mean=*/true);
  }
  (void)staging_.Depart(d);
  return {};
}

void DdpReduction::KeepZeros(size_t bucket) {
  for (const BucketSlot& slot : plan_.plan.buckets[bucket].slots) {
    const auto values =
        staging_.bucket(bucket).subspan(slot.offset, shapes_[slot.parameter].elements);
    if (std::ranges::all_of(values, [](float v) { return v == 0; })) {
      KeepMemory(slot.parameter);
    }
  }
}

void DdpReduction::RestoreMemory(size_t parameter) {
  const auto kept = kept_.find(parameter);
  if (kept == kept_.end()) return;
  memory_->PutBack(parameter, kept->second);
  is_empty_ = false;
}

// Adds to the values of a bucket what its codec holds back: they go without loss.
void DdpReduction::FlushBucket(size_t b) {
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
  SendExactly(*codecs_.at(plan_.codecs[b]), staging_.bucket(b), fields);
}

void DdpReduction::CommitFlushed() {
  // Only velocities go on without anything new.
  is_empty_ = std::ranges::none_of(
      codecs_, [](const auto& entry) { return entry.second->has_momentum(); });
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

Result<bool> DdpReduction::Take(size_t parameter, const at::Tensor& gradient) {
  EQ_ASSIGN_OR_RETURN(const bool taken, staging_.Take(parameter, gradient));
  const size_t b = plan_.place[parameter].bucket;
  if (!taken || !staging_.complete(b)) return false;
  EQ_RETURN_IF_ERROR(Send(b));
  return true;
}

Status DdpReduction::Arrive(size_t ddp_bucket, const at::Tensor& gradients) {
  std::vector<size_t> waiting;
  for (const size_t b : plan_.parts[ddp_bucket]) {
    if (!staging_.complete(b)) waiting.push_back(b);
  }
  EQ_RETURN_IF_ERROR(staging_.Arrive(ddp_bucket, gradients));
  for (const size_t b : waiting) EQ_RETURN_IF_ERROR(Send(b));
  return {};
}

Status DdpReduction::UseCodecs(const CodecsBySpec& codecs) {
  const CodecsBySpec before = std::exchange(codecs_, codecs);
  for (size_t b = 0; b < plan_.codecs.size(); ++b) {
    if (codecs.at(plan_.codecs[b]) == before.at(plan_.codecs[b])) continue;
    EQ_ASSIGN_OR_RETURN(ExchangeChoice choice, ChoiceOf(b, codecs));
    EQ_RETURN_IF_ERROR(reducer_->SetCodec(b, std::move(choice.codec)));
  }
  return {};
}

Status DdpReduction::LoadMemory(const Sections& sections) {
  is_empty_ = false;
  return memory_->Load(sections);
}

}  // namespace elastiquant
