// Workers that choose the bits of each bucket (policy/bit_policy.h).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "elastiquant/codec/rate.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/policy/bit_policy.h"
#include "elastiquant/policy/dither_nmse.h"
#include "elastiquant/train/codecs/worker_codecs.h"

namespace elastiquant {
namespace {

// One bucket in a step.
struct BucketSeen {
  double own_square = 0, own_range = 0;
  double square_of_mean = 0;
  double mean_error = 0;  // what this worker adds to the mean's variance: its part of a mean
};

class BitCodecs : public WorkerCodecs {
 public:
  BitCodecs(const WorkerCodecsOptions& options, std::unique_ptr<policy::BitPolicy> policy)
      : spec_(options.codec->spec()),
        shares_(SharesOf(options.volumes)),
        rank_(options.rank),
        two_phase_(options.two_phase),
        ladder_({options.codec}),
        policy_(std::move(policy)),
        now_(options.buckets),
        told_(options.buckets),
        measured_(options.buckets),
        nmse_ratios_(options.buckets, 1),
        decided_(shares_.size(), std::vector<double>(options.buckets)) {}

  size_t scalars() const override {
    return kPerBucket * now_.size() + shares_.size() * now_.size();
  }
  std::vector<std::shared_ptr<const Codec>> Ladder() const override { return ladder_; }

  // The first scalars are means by the workers' shares. Of the others each worker fills its own
  // and leaves the rest zero.
  void BeginStep(std::span<float> scalars) override {
    std::ranges::fill(now_, BucketSeen{});
    std::ranges::fill(measured_, Measured{});
    std::ranges::fill(scalars, 0.0F);
    for (size_t b = 0; b < now_.size(); ++b) {
      scalars[kPerBucket * b] = Sendable(told_[b].own_square);
      scalars[kPerBucket * b + 1] = Sendable(told_[b].mean_error);
      scalars[PlaceOf(rank_, b)] = Sendable(bits_[b] / shares_[rank_]);
    }
  }

  void BeforeSent(size_t bucket, std::span<const float> values,
                  std::span<const std::span<float>>) override {
    now_[bucket].own_square = SumSquares(values.data(), values.size());
    const auto [least, most] = std::ranges::minmax_element(values);
    now_[bucket].own_range = values.empty() ? 0 : static_cast<double>(*most - *least);
  }
  void OnMeasured(size_t bucket, const MeasuredMessage& message) override {
    const double error = SumSquares(message.error.data(), message.error.size());
    const double input = SumSquares(message.input.data(), message.input.size());
    std::lock_guard lock(mutex_);
    measured_[bucket].error += error;
    measured_[bucket].input += input;
  }
  void OnMean(size_t bucket, std::span<const float> mean) override {
    now_[bucket].square_of_mean = SumSquares(mean.data(), mean.size());
  }

  Status EndStep(std::span<const float> scalars, const StepSeen& seen) override {
    if (seen.is_void) return {};
    for (size_t w = 0; w < shares_.size(); ++w) {
      for (size_t b = 0; b < now_.size(); ++b) {
        const double steps = static_cast<double>(scalars[PlaceOf(w, b)]) / policy::kBitStep;
        decided_[w][b] = std::round(steps) * policy::kBitStep;
      }
    }
    TakeMeasured();
    if (has_told_) policy_->Observe(Observed(scalars));
    told_ = now_;
    told_step_ = seen;
    has_told_ = true;
    for (size_t b = 0; b < told_.size(); ++b) told_[b].mean_error = ErrorOfMean(b);
    return Refresh();
  }

  std::shared_ptr<const Codec> CodecOf(size_t bucket) const override {
    return codecs_.at(bits_[bucket]);
  }
  nlohmann::json Decisions() const override { return {{"bits", decided_}}; }

  std::vector<double> SaveState() const override {
    std::vector<double> state = {has_told_ ? 1.0 : 0.0, told_step_.loss,
                                 told_step_.learning_rate};
    for (size_t b = 0; b < told_.size(); ++b) {
      const BucketSeen& t = told_[b];
      state.insert(state.end(), {t.own_square, t.own_range, t.square_of_mean, t.mean_error,
                                 nmse_ratios_[b]});
    }
    const std::vector<double> of_policy = policy_->SaveState();
    state.insert(state.end(), of_policy.begin(), of_policy.end());
    return state;
  }
  Status LoadState(std::span<const double> state) override {
    const size_t own = kFront + kSavedPerBucket * told_.size();
    if (state.size() < own ||
        !std::ranges::all_of(state, [](double v) { return std::isfinite(v); })) {
      return CorruptData("what the policy of bits remembers is damaged");
    }
    EQ_RETURN_IF_ERROR(policy_->LoadState(state.subspan(own)));
    has_told_ = state[0] != 0;
    told_step_ = {.loss = state[1], .learning_rate = state[2]};
    for (size_t b = 0; b < told_.size(); ++b) {
      const auto of = state.subspan(kFront + kSavedPerBucket * b, kSavedPerBucket);
      told_[b] = {of[0], of[1], of[2], of[3]};
      nmse_ratios_[b] = of[4];
    }
    return Refresh();
  }

  // Makes what the policy has decided.
  Status Refresh() {
    bits_ = policy_->Bits();
    for (const double bits : bits_) {
      if (codecs_.contains(bits)) continue;
      EQ_ASSIGN_OR_RETURN(codecs_[bits], MakeCodec(SpecAt(bits)));
    }
    return {};
  }

 private:
  static constexpr size_t kPerBucket = 2;       // scalars that are means
  static constexpr size_t kFront = 3;           // of a state
  static constexpr size_t kSavedPerBucket = 5;  // likewise

  struct Measured {
    double error = 0, input = 0;  // squares
  };

  size_t PlaceOf(size_t worker, size_t bucket) const {
    return (kPerBucket + worker) * now_.size() + bucket;
  }

  // The run's codec, "dither:bits=2" or "dither:bits=2,model=gauss", at other bits.
  std::string SpecAt(double bits) const {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof(text), bits).ptr;
    const size_t comma = spec_.find(',');
    const std::string rest = comma == std::string::npos ? "" : spec_.substr(comma);
    return "dither:bits=" + std::string(text, end) + rest;
  }

  double NmseOf(size_t bucket) const {
    return policy::DitherNmse(bits_[bucket]) * nmse_ratios_[bucket];
  }

  void TakeMeasured() {
    for (size_t b = 0; b < now_.size(); ++b) {
      const Measured& m = measured_[b];
      if (!(m.input > 0)) continue;
      nmse_ratios_[b] = m.error / m.input / policy::DitherNmse(bits_[b]);
    }
  }

  // Returns such numbers that their mean by the workers' shares p is sum p^2 times the error of
  // a worker's frame, and in two phases that of the owners' frames besides, each of which has
  // about the same part of the mean.
  double ErrorOfMean(size_t bucket) const {
    const double own = shares_[rank_] * NmseOf(bucket) * now_[bucket].own_square;
    if (!two_phase_) return own;
    const double part = 1 / (static_cast<double>(shares_.size()) * shares_[rank_]);
    return own + part * NmseOf(bucket) * now_[bucket].square_of_mean;
  }

  policy::Observation Observed(std::span<const float> scalars) const {
    policy::Observation round{.loss = told_step_.loss, .step_size = told_step_.learning_rate};
    for (size_t b = 0; b < told_.size(); ++b) {
      const BucketSeen& t = told_[b];
      round.layers.push_back({.own_square = t.own_square,
                              .own_range = t.own_range,
                              .mean_of_squares = static_cast<double>(scalars[kPerBucket * b]),
                              .square_of_mean = t.square_of_mean,
                              .mean_error = static_cast<double>(scalars[kPerBucket * b + 1]),
                              .nmse_ratio = nmse_ratios_[b]});
    }
    return round;
  }

  const std::string spec_;  // of the run's codec
  const std::vector<double> shares_;
  const size_t rank_;
  const bool two_phase_;
  const std::vector<std::shared_ptr<const Codec>> ladder_;
  const std::unique_ptr<policy::BitPolicy> policy_;
  std::map<double, std::shared_ptr<const Codec>> codecs_;  // that were decided for so far
  std::vector<double> bits_;                               // of the next step, by bucket
  std::vector<BucketSeen> now_;                            // in the newest step
  std::vector<BucketSeen> told_;  // in the step whose numbers travel in the next one
  StepSeen told_step_;
  bool has_told_ = false;
  std::mutex mutex_;
  std::vector<Measured> measured_;
  std::vector<double> nmse_ratios_;           // as last measured
  std::vector<std::vector<double>> decided_;  // by worker and bucket, for the newest step
};

}  // namespace

Result<std::unique_ptr<WorkerCodecs>> MakeBitCodecs(const WorkerCodecsOptions& options) {
  if (RateOf(*options.codec) == 0) {
    return InvalidArgument("a policy of bits needs a codec with a rate: give --codec dither");
  }
  const policy::BitContext context{.weights = SharesOf(options.volumes),
                                   .worker = options.rank,
                                   .layers = options.buckets,
                                   .rounds = options.steps};
  EQ_ASSIGN_OR_RETURN(auto policy, policy::ParseBitPolicy(options.bits_policy, context));
  auto made = std::make_unique<BitCodecs>(options, std::move(policy));
  EQ_RETURN_IF_ERROR(made->Refresh());
  return std::unique_ptr<WorkerCodecs>(std::move(made));
}

}  // namespace elastiquant
