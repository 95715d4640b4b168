// Averages a model in fragments over the workers: each fragment at a time of its own, and
// several of them at once. Where workers train alone for many steps and then average what came
// of it (DiLoCo and its kin), a fragment travels while training goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/layers/layer_reduction.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

struct FragmentOptions {
  // By parameter: which fragment it belongs to, from 0 on. Each fragment must have one. See
  // BalancedFragments in fragments.h.
  std::vector<size_t> fragments;
  std::string codec = "dither:bits=1";  // spec
  std::string exact = "1d";             // as BucketPlanOptions has it
  std::string exchange = "auto";        // as ChooseExchange takes it
  std::string down;                     // spec of means on their way back; empty: `codec`
  size_t bucket_elements = 65536;
  size_t scalars = 0;  // extra values that fragment 0 averages exactly
  // Where measured messages go, if several reductions of the same layers have one certificate
  // together; null: to one of its own.
  Certificate* certificate = nullptr;
  ReducerOptions reducer;  // its channel is the first of as many as there are fragments
  // Adds to the options of each fragment's reduction, such as its `before_sent`. May be null.
  std::function<void(size_t fragment, LayerReductionOptions*)> add = nullptr;
};

// It owns the memory that is averaged, a value for each of the model's. Not thread-safe, except
// that calls for one fragment may be made beside those for another.
class FragmentReduction {
 public:
  // Collective. `shapes` must outlive it. Fails as PlanBuckets, MakeCodec, ChooseExchange and
  // GradientReducer::Create do, and with InvalidArgument for a fragment without parameters or
  // more fragments than there are channels.
  static Result<std::unique_ptr<FragmentReduction>> Make(Communicator* comm,
                                                         std::span<const ParameterShape> shapes,
                                                         FragmentOptions options);

  // Returns the buckets of all fragments, one fragment after the other, without scalars. Fails
  // as PlanBuckets does.
  static Result<BucketPlan> Plan(std::span<const ParameterShape> shapes,
                                 const FragmentOptions& options);

  size_t fragments() const { return parts_.size(); }
  // The parameters of a fragment, in the order of the model.
  std::span<const size_t> members(size_t fragment) const { return parts_[fragment].members; }
  // Where a parameter's values are to be written before Begin, and where their mean is after
  // Finish. They must be left alone between the two.
  std::span<float> values(size_t parameter) { return values_[parameter]; }
  std::span<float> scalars() { return scalars_; }
  // The reduction of a fragment, and what its buckets hold.
  LayerReduction& reduction(size_t fragment) { return *parts_[fragment].layers; }
  std::span<float> bucket(size_t fragment, size_t index) {
    return buckets_[parts_[fragment].first + index];
  }

  // Begins to average a fragment, and returns at once. `round` is any number that no other
  // average of this fragment has had; all workers must give the same. A fragment's averages
  // follow each other: Finish must come between two Begins.
  Status Begin(size_t fragment, uint64_t round);
  bool is_under_way(size_t fragment) const { return parts_[fragment].is_under_way; }
  // Waits for the mean. If the outcome is skipped, some worker had a NaN or infinity, and the
  // values are lost. What codecs remember is then as it was.
  Result<StepOutcome> Finish(size_t fragment);

  // What codecs remember, by parameter (CodecMemory). Must not be called while a fragment is
  // under way.
  void SaveMemory(Sections* sections) const;
  Status LoadMemory(const Sections& sections);
  // Of one fragment.
  Status LoadMemory(size_t fragment, const Sections& sections);
  // For a group that broke amid a round of a fragment, after Finish: makes its codecs remember
  // what they did before the round, and returns what they would remember if the round counted,
  // because another worker has applied its mean. Nothing if that cannot be known. `has_come`
  // says that Finish has returned a mean.
  std::optional<Sections> TakeBackMemory(size_t fragment, bool has_come);

  // By parameter: the spec of the codec that it travels under.
  std::vector<std::string> SpecsByParameter() const;
  // How means come about, in words (ExchangeChoice::Describe).
  const std::string& exchange() const { return exchange_; }
  ReducerStats TakeStats();
  Certificate& certificate() { return *certificate_; }

 private:
  struct Part {
    BucketPlan plan;
    size_t first = 0;  // of its buckets, among all
    std::vector<size_t> members;
    std::unique_ptr<LayerReduction> layers;  // over `plan`
    bool is_under_way = false;
  };

  FragmentReduction(std::span<const ParameterShape> shapes, FragmentOptions options)
      : shapes_(shapes), options_(std::move(options)) {}
  Status MakeParts();
  Status MakeCodecs(int world_size);
  Status MakeLayers(Communicator* comm);
  Status MakePart(Communicator* comm, size_t fragment);
  static bool RemembersFinite(const Part& part);
  Result<ExchangeChoice> ChoiceOf(const PlannedBucket& bucket,
                                  std::shared_ptr<const Codec> codec, int world_size) const;

  const std::span<const ParameterShape> shapes_;
  const FragmentOptions options_;
  std::unique_ptr<Certificate> own_certificate_;  // of all fragments together
  Certificate* certificate_ = nullptr;
  std::vector<std::vector<float>> buckets_;  // of all fragments, one after the other
  std::vector<std::span<float>> values_;     // by parameter
  std::span<float> scalars_;
  CodecsBySpec codecs_;
  std::shared_ptr<const Codec> down_;
  std::string exchange_;
  std::vector<Part> parts_;  // last: their threads use the rest
};

}  // namespace elastiquant
