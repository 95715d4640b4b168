// The rules that choose a number of levels by the loss: AdaQuantFL and DAdaQuant.
#include <algorithm>
#include <cmath>
#include <deque>

#include "elastiquant/policy/bit_rules.h"

namespace elastiquant::policy {
namespace {

constexpr double kMostLevels = 65535;

class AdaQuantFl : public BitPolicy {
 public:
  AdaQuantFl(const BitContext& bit_context, double start)
      : BitPolicy(bit_context), start_(start) {}

  std::vector<double> SaveState() const override { return {first_, last_}; }
  Status LoadState(std::span<const double> state) override {
    if (!IsState(state, 2) || !(state[0] >= 0 && state[1] >= 0)) {
      return CorruptData("the state of policy 'adaquantfl' is not two losses");
    }
    first_ = state[0];
    last_ = state[1];
    return {};
  }

 private:
  std::vector<double> Wanted() const override {
    const double factor = first_ > 0 ? std::sqrt(first_ / last_) : 1;
    const double levels = std::min(std::ceil(factor * start_ - 1e-9), kMostLevels);
    return std::vector<double>(context().layers, BitsOfLevels(levels));
  }
  void Take(const Observation& round) override {
    if (!(round.loss > 0)) return;  // nothing to divide by
    if (first_ == 0) first_ = round.loss;
    last_ = round.loss;
  }

  const double start_;
  double first_ = 0, last_ = 0;  // 0: none yet
};

struct DAdaQuantOptions {
  double start, cap, keep, patience;
  bool in_time, by_client;
};

class DAdaQuant : public BitPolicy {
 public:
  DAdaQuant(const BitContext& bit_context, const DAdaQuantOptions& options)
      : BitPolicy(bit_context),
        options_(options),
        patience_(options.patience > 0
                      ? static_cast<size_t>(options.patience)
                      : std::max<size_t>(1, static_cast<size_t>(bit_context.rounds / 10))),
        levels_(options.start) {}

  // The levels, the rounds since they changed, and the running means.
  std::vector<double> SaveState() const override {
    std::vector<double> state = {levels_, static_cast<double>(unchanged_)};
    state.insert(state.end(), means_.begin(), means_.end());
    return state;
  }
  Status LoadState(std::span<const double> state) override {
    if (state.size() < 2 || state.size() > 3 + patience_ || !IsState(state, state.size()) ||
        !(state[0] >= options_.start && state[0] <= options_.cap && state[1] >= 0)) {
      return CorruptData("the state of policy 'dadaquant' is not its own");
    }
    levels_ = state[0];
    unchanged_ = static_cast<size_t>(state[1]);
    means_.assign(state.begin() + 2, state.end());
    return {};
  }

 private:
  std::vector<double> Wanted() const override {
    double levels = levels_;
    if (options_.by_client) {
      levels = ClientLevels(levels, context().weights)[context().worker];
    }
    return std::vector<double>(context().layers,
                               BitsOfLevels(std::max(1.0, std::round(levels))));
  }

  void Take(const Observation& round) override {
    const double keep = options_.keep;
    means_.push_back(means_.empty() ? round.loss
                                    : keep * means_.back() + (1 - keep) * round.loss);
    ++unchanged_;
    if (means_.size() <= patience_) return;
    const bool improves = means_.back() < means_.front();  // `patience` rounds lie between
    means_.pop_front();
    if (!options_.in_time || improves || unchanged_ < patience_) return;
    levels_ = std::min(2 * levels_, options_.cap);
    unchanged_ = 0;
  }

  const DAdaQuantOptions options_;
  const size_t patience_;
  double levels_;
  size_t unchanged_ = 0;      // rounds since the levels have changed
  std::deque<double> means_;  // of the loss after the latest rounds, up to `patience`
};

}  // namespace

std::vector<double> ClientLevels(double levels, std::span<const double> weights) {
  double a = 0, b = 0;
  for (const double w : weights) {
    a += std::pow(w, 2.0 / 3);
    b += w * w / (levels * levels);
  }
  std::vector<double> own;
  for (const double w : weights) own.push_back(std::sqrt(a / b) * std::pow(w, 2.0 / 3));
  return own;
}

std::unique_ptr<BitPolicy> MakeAdaQuantFl(PolicyKeys& keys, const BitContext& context) {
  return std::make_unique<AdaQuantFl>(context, keys.Number("start", 2, 1, kMostLevels));
}

std::unique_ptr<BitPolicy> MakeDAdaQuant(PolicyKeys& keys, const BitContext& context) {
  DAdaQuantOptions options{};
  options.start = keys.Number("start", 1, 1, kMostLevels);
  options.cap = keys.Number("cap", std::max(16.0, options.start), options.start, kMostLevels);
  options.keep = keys.Number("psi", .9, 0, 1);
  options.patience = std::floor(keys.Number("phi", 0, 0, 1e6));
  options.in_time = keys.YesOrNo("time", true);
  options.by_client = keys.YesOrNo("client", true);
  return std::make_unique<DAdaQuant>(context, options);
}

}  // namespace elastiquant::policy
