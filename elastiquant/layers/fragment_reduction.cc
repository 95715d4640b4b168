#include "elastiquant/layers/fragment_reduction.h"

#include <algorithm>
#include <utility>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

// What buckets travel under, in a LayerReduction.
constexpr char kFragmentCodec[] = "compressed";
constexpr char kFragmentExact[] = "exact";

const char* CodecKey(const PlannedBucket& bucket) {
  return bucket.exact ? kFragmentExact : kFragmentCodec;
}

}  // namespace

Result<std::unique_ptr<FragmentReduction>> FragmentReduction::Make(
    Communicator* comm, std::span<const ParameterShape> shapes, FragmentOptions options) {
  std::unique_ptr<FragmentReduction> made(new FragmentReduction(shapes, std::move(options)));
  EQ_RETURN_IF_ERROR(made->MakeParts());
  EQ_RETURN_IF_ERROR(made->MakeLayers(comm));
  return made;
}

Result<BucketPlan> FragmentReduction::Plan(std::span<const ParameterShape> shapes,
                                           const FragmentOptions& options) {
  return PlanBuckets(shapes, {.bucket_elements = options.bucket_elements,
                              .exact = options.exact,
                              .groups = options.fragments});
}

Status FragmentReduction::MakeParts() {
  const std::vector<size_t>& fragments = options_.fragments;
  if (fragments.size() != shapes_.size()) {
    return InvalidArgument("fragments are given for " + std::to_string(fragments.size()) +
                           " of " + std::to_string(shapes_.size()) + " parameters");
  }
  parts_.resize(fragments.empty() ? 0 : 1 + *std::ranges::max_element(fragments));
  if (parts_.size() > kMaxChannels - options_.reducer.channel) {
    return InvalidArgument("there can be " +
                           std::to_string(kMaxChannels - options_.reducer.channel) +
                           " fragments at most, not " + std::to_string(parts_.size()));
  }
  EQ_ASSIGN_OR_RETURN(BucketPlan plan, Plan(shapes_, options_));
  for (size_t p = 0; p < fragments.size(); ++p) parts_[fragments[p]].members.push_back(p);
  for (const Part& part : parts_) {
    if (part.members.empty()) return InvalidArgument("a fragment has no parameters");
  }
  for (PlannedBucket& bucket : plan.buckets) {
    parts_[fragments[bucket.slots[0].parameter]].plan.buckets.push_back(std::move(bucket));
  }
  if (options_.scalars > 0) {
    PlannedBucket& bucket = parts_[0].plan.buckets.emplace_back();
    bucket.exact = true;
    bucket.elements = options_.scalars;
    bucket.name = NameOfBucket(bucket, shapes_);
  }
  return {};
}

Result<ExchangeChoice> FragmentReduction::ChoiceOf(const PlannedBucket& bucket,
                                                   std::shared_ptr<const Codec> codec,
                                                   int world_size) const {
  if (!bucket.exact) {
    return ChooseExchange(std::move(codec), down_, options_.exchange, world_size);
  }
  return AsItAsks(std::move(codec));
}

Status FragmentReduction::MakeCodecs(int world_size) {
  EQ_ASSIGN_OR_RETURN(codecs_[kFragmentCodec], MakeCodec(options_.codec));
  EQ_ASSIGN_OR_RETURN(codecs_[kFragmentExact], MakeCodec("fp32"));
  if (!options_.down.empty()) {
    EQ_ASSIGN_OR_RETURN(down_, MakeCodec(options_.down));
  }
  EQ_ASSIGN_OR_RETURN(
      const ExchangeChoice choice,
      ChooseExchange(codecs_[kFragmentCodec], down_, options_.exchange, world_size));
  exchange_ = choice.Describe();
  return {};
}

Status FragmentReduction::MakeLayers(Communicator* comm) {
  EQ_RETURN_IF_ERROR(MakeCodecs(comm->world_size()));
  BucketPlan all;
  for (const Part& part : parts_) {
    all.buckets.insert(all.buckets.end(), part.plan.buckets.begin(), part.plan.buckets.end());
  }
  own_certificate_ = std::make_unique<Certificate>(all, shapes_);
  certificate_ = options_.certificate ? options_.certificate : own_certificate_.get();
  for (const PlannedBucket& bucket : all.buckets) buckets_.emplace_back(bucket.elements);
  values_.resize(shapes_.size());
  size_t first = 0;
  for (size_t f = 0; f < parts_.size(); ++f) {
    parts_[f].first = first;
    EQ_RETURN_IF_ERROR(MakePart(comm, f));
    first += parts_[f].plan.buckets.size();
  }
  return {};
}

// Makes the reduction of a fragment over its buckets.
Status FragmentReduction::MakePart(Communicator* comm, size_t fragment) {
  Part& part = parts_[fragment];
  LayerBuckets buckets{part.plan, shapes_, {}, {}};
  for (size_t b = 0; b < part.plan.buckets.size(); ++b) {
    const PlannedBucket& planned = part.plan.buckets[b];
    const std::span<float> memory = bucket(fragment, b);
    for (const BucketSlot& slot : planned.slots) {
      values_[slot.parameter] = memory.subspan(slot.offset, shapes_[slot.parameter].elements);
    }
    if (planned.slots.empty()) scalars_ = memory;
    buckets.gradients.push_back(memory);
    buckets.specs.emplace_back(CodecKey(planned));
  }
  LayerReductionOptions options;
  options.reducer = options_.reducer;
  options.reducer.channel += static_cast<uint32_t>(fragment);
  // Each has its own noise.
  if (fragment > 0) options.reducer.seed = Mix64(options_.reducer.seed ^ fragment);
  options.certificate = certificate_;
  options.first_bucket = part.first;
  options.choose = [this, &part, world = comm->world_size()](
                       size_t b, std::shared_ptr<const Codec> codec) {
    return ChoiceOf(part.plan.buckets[b], std::move(codec), world);
  };
  if (options_.add) options_.add(fragment, &options);
  EQ_ASSIGN_OR_RETURN(part.layers,
                      LayerReduction::Make(comm, std::move(buckets), codecs_, options));
  return {};
}

Status FragmentReduction::Begin(size_t fragment, uint64_t round) {
  Part& part = parts_[fragment];
  part.is_under_way = true;
  EQ_RETURN_IF_ERROR(part.layers->BeginStep(round));
  for (size_t b = 0; b < part.plan.buckets.size(); ++b) {
    EQ_RETURN_IF_ERROR(part.layers->MarkReady(b));
  }
  return {};
}

Result<StepOutcome> FragmentReduction::Finish(size_t fragment) {
  parts_[fragment].is_under_way = false;
  return parts_[fragment].layers->Finish();
}

void FragmentReduction::SaveMemory(Sections* sections) const {
  for (const Part& part : parts_) part.layers->SaveMemory(sections);
}

Status FragmentReduction::LoadMemory(const Sections& sections) {
  for (const Part& part : parts_) EQ_RETURN_IF_ERROR(part.layers->CheckMemory(sections));
  for (Part& part : parts_) EQ_RETURN_IF_ERROR(part.layers->LoadMemory(sections));
  return {};
}

Status FragmentReduction::LoadMemory(size_t fragment, const Sections& sections) {
  return parts_[fragment].layers->LoadMemory(sections);
}

std::optional<Sections> FragmentReduction::TakeBackMemory(size_t fragment, bool has_come) {
  Part& part = parts_[fragment];
  if (!has_come && !part.layers->FlipMemory()) return {};
  Sections memory;
  part.layers->SaveMemory(&memory);
  const bool is_whole = RemembersFinite(part);  // or this worker could not encode
  if (!part.layers->FlipMemory()) return {};
  return is_whole ? std::optional(std::move(memory)) : std::nullopt;
}

bool FragmentReduction::RemembersFinite(const Part& part) {
  for (size_t b = 0; b < part.plan.buckets.size(); ++b) {
    if (!std::ranges::all_of(part.layers->Remembered(b), AllFinite)) return false;
  }
  return true;
}

std::vector<std::string> FragmentReduction::SpecsByParameter() const {
  std::vector<std::string> specs(shapes_.size());
  for (const Part& part : parts_) {
    for (const PlannedBucket& bucket : part.plan.buckets) {
      for (const BucketSlot& slot : bucket.slots) {
        specs[slot.parameter] = codecs_.at(CodecKey(bucket))->spec();
      }
    }
  }
  return specs;
}

ReducerStats FragmentReduction::TakeStats() {
  ReducerStats stats;
  for (Part& part : parts_) stats += part.layers->TakeStats();
  return stats;
}

}  // namespace elastiquant
