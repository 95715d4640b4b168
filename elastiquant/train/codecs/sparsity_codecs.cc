// Workers that send unequal parts of their gradients (policy/worker_sparsity.h).
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "elastiquant/kernels/norms.h"
#include "elastiquant/policy/worker_sparsity.h"
#include "elastiquant/train/codecs/worker_codecs.h"

namespace elastiquant {
namespace {

// The scalars; behind them each worker's decision has a place of its own, which the others
// leave zero: means are sums then.
constexpr size_t kHasRound = 0, kSent = 1, kHasThreshold = 2, kLogThreshold = 3, kDecisions = 4;

class SparsityCodecs : public WorkerCodecs {
 public:
  SparsityCodecs(const WorkerCodecsOptions& options,
                 std::unique_ptr<policy::WorkerSparsity> policy)
      : workers_(options.volumes.size()),
        rank_(options.rank),
        share_(SharesOf(options.volumes)[options.rank]),
        policy_(std::move(policy)),
        decided_(workers_) {}

  Status MakeCodecs() {
    for (const std::string& spec : policy_->ladder()) {
      EQ_ASSIGN_OR_RETURN(std::shared_ptr<const Codec> codec, MakeCodec(spec));
      ladder_.push_back(std::move(codec));
    }
    return Refresh();
  }

  size_t scalars() const override { return kDecisions + workers_; }
  std::vector<std::shared_ptr<const Codec>> Ladder() const override { return ladder_; }

  Status Foresee(double norm) override {
    policy_->Foresee(norm);
    return Refresh();
  }
  void BeginStep(std::span<float> scalars) override {
    Forget();
    std::ranges::fill(scalars, 0.0F);
    const double among = 1 / (static_cast<double>(workers_) * share_);  // of a plain mean
    if (has_round_) {
      scalars[kHasRound] = Sendable(among);
      scalars[kSent] = Sendable(among * report_.sent);
      if (std::isfinite(report_.log_threshold)) {
        scalars[kHasThreshold] = Sendable(among);
        scalars[kLogThreshold] = Sendable(among * report_.log_threshold);
      }
    }
    scalars[kDecisions + rank_] = Sendable(Decision() / share_);
  }

  void BeforeSent(size_t, std::span<const float> values,
                  std::span<const std::span<float>> remembered) override {
    squares_ += SumSquares(values.data(), values.size());
    coordinates_ += values.size();
    if (!threshold_ && !policy_->needs_quantile()) return;
    for (size_t i = 0; i < values.size(); ++i) {
      // As error feedback adds them, so that the same reach the threshold as are sent.
      const float all = remembered.empty() ? values[i] : values[i] + remembered[0][i];
      const float magnitude = std::abs(all);
      if (threshold_) {
        reached_ += magnitude >= *threshold_;
      } else {
        magnitudes_.push_back(magnitude);
      }
    }
  }
  void OnMeasured(size_t, const MeasuredMessage&) override {}
  void OnMean(size_t, std::span<const float>) override {}

  Status EndStep(std::span<const float> scalars, const StepSeen& seen) override {
    if (seen.is_void) return {};
    for (size_t w = 0; w < workers_; ++w) {
      decided_[w] = static_cast<double>(scalars[kDecisions + w]);
    }
    by_threshold_ = threshold_.has_value();
    const policy::OwnRound own = OwnRoundNow();
    const policy::AgreedRound agreed = Agreed(scalars);
    report_ = policy_->Report(own);
    has_round_ = true;
    policy_->Next(own, agreed);
    return Refresh();
  }

  std::shared_ptr<const Codec> CodecOf(size_t) const override { return codec_; }
  nlohmann::json Decisions() const override {
    return {{by_threshold_ ? "thresholds" : "ratios", decided_}};
  }

  std::vector<double> SaveState() const override {
    const bool has_threshold = std::isfinite(report_.log_threshold);
    std::vector<double> state = {has_round_ ? 1.0 : 0.0, report_.sent,
                                 has_threshold ? 1.0 : 0.0,
                                 has_threshold ? report_.log_threshold : 0.0};
    if (!has_round_) state[1] = 0;
    const std::vector<double> of_policy = policy_->SaveState();
    state.insert(state.end(), of_policy.begin(), of_policy.end());
    return state;
  }
  Status LoadState(std::span<const double> state) override {
    if (state.size() < 4 || !(state[1] >= 0 && state[1] <= 1) || !std::isfinite(state[3])) {
      return CorruptData("what the algorithm remembers of its rounds is damaged");
    }
    EQ_RETURN_IF_ERROR(policy_->LoadState(state.subspan(4)));
    has_round_ = state[0] != 0;
    report_ = {};
    if (has_round_) report_.sent = state[1];
    if (state[2] != 0) report_.log_threshold = state[3];
    return Refresh();
  }

 private:
  double Decision() const { return threshold_ ? *threshold_ : ratio_; }

  void Forget() {
    squares_ = 0;
    coordinates_ = reached_ = 0;
    magnitudes_.clear();
  }

  policy::OwnRound OwnRoundNow() {
    policy::OwnRound own{.norm = std::sqrt(squares_), .sent = ratio_};
    const auto all = static_cast<double>(std::max<size_t>(coordinates_, 1));
    if (threshold_) own.sent = static_cast<double>(reached_) / all;
    if (!magnitudes_.empty()) {
      const auto exceed = static_cast<size_t>(policy_->ratio() * all);
      const auto at = magnitudes_.begin() +
                      static_cast<std::ptrdiff_t>(std::min(exceed, magnitudes_.size() - 1));
      std::nth_element(magnitudes_.begin(), at, magnitudes_.end(), std::greater<>());
      own.quantile = *at;
      magnitudes_ = {};
    }
    return own;
  }

  // Of the round before, and only if all workers have told of it.
  static policy::AgreedRound Agreed(std::span<const float> scalars) {
    constexpr float kAll = .999F;
    policy::AgreedRound agreed;
    if (scalars[kHasRound] > kAll) {
      agreed.sent = std::clamp(static_cast<double>(scalars[kSent]), 0.0, 1.0);
    }
    if (scalars[kHasThreshold] > kAll) {
      agreed.log_threshold = static_cast<double>(scalars[kLogThreshold]);
    }
    return agreed;
  }

  // Makes what the policy has decided.
  Status Refresh() {
    EQ_ASSIGN_OR_RETURN(codec_, MakeCodec(policy_->codec()));
    threshold_.reset();
    if (const auto threshold = policy_->threshold()) {
      threshold_ = static_cast<float>(*threshold);
    }
    ratio_ = policy_->own_ratio();
    return {};
  }

  const size_t workers_, rank_;
  const double share_;  // of this worker in the mean
  const std::unique_ptr<policy::WorkerSparsity> policy_;
  std::vector<std::shared_ptr<const Codec>> ladder_;
  std::shared_ptr<const Codec> codec_;  // of the next step
  std::optional<float> threshold_;      // the next codec's, if it has one
  double ratio_ = 0;                    // the next codec's, if it has no threshold
  // What the newest step has shown.
  double squares_ = 0;
  size_t coordinates_ = 0, reached_ = 0;
  std::vector<float> magnitudes_;
  // What is to be told of it in the next one.
  bool has_round_ = false;
  policy::AgreedRound report_;
  std::vector<double> decided_;  // by all workers, for the newest step
  bool by_threshold_ = false;
};

}  // namespace

Result<std::unique_ptr<WorkerCodecs>> MakeSparsityCodecs(const WorkerCodecsOptions& options) {
  EQ_ASSIGN_OR_RETURN(const policy::Sparsity sparsity,
                      policy::ParseSparsity(options.algorithm));
  EQ_ASSIGN_OR_RETURN(auto policy, policy::WorkerSparsity::Make(sparsity, options.ratio,
                                                                options.volumes, options.rank));
  auto made = std::make_unique<SparsityCodecs>(options, std::move(policy));
  EQ_RETURN_IF_ERROR(made->MakeCodecs());
  return std::unique_ptr<WorkerCodecs>(std::move(made));
}

}  // namespace elastiquant
