// The rules that choose bits by how large gradients are: FedDQ, DQ-SGD and AQG.
#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "elastiquant/policy/bit_rules.h"
#include "elastiquant/policy/dither_nmse.h"

namespace elastiquant::policy {
namespace {

constexpr double kMostBitsAsked = 32;

class FedDq : public BitPolicy {
 public:
  FedDq(const BitContext& bit_context, double resolution, double start)
      : BitPolicy(bit_context), resolution_(resolution), bits_(bit_context.layers, start) {}

  std::vector<double> SaveState() const override { return bits_; }
  Status LoadState(std::span<const double> state) override {
    if (!IsState(state, bits_.size())) {
      return CorruptData("the state of policy 'feddq' is not a number for each layer");
    }
    bits_.assign(state.begin(), state.end());
    return {};
  }

 private:
  std::vector<double> Wanted() const override { return bits_; }
  void Take(const Observation& round) override {
    for (size_t l = 0; l < bits_.size(); ++l) {
      const double steps = round.layers[l].own_range * round.step_size / resolution_;
      const double bits = steps > 1 ? std::ceil(std::log2(steps) - 1e-9) : 0;
      bits_[l] = std::min(bits, kMostBitsAsked);
    }
  }

  const double resolution_;
  std::vector<double> bits_;
};

class DqSgd : public BitPolicy {
 public:
  DqSgd(const BitContext& bit_context, double start, double alpha)
      : BitPolicy(bit_context), start_(start), alpha_(alpha), bits_(start) {}

  std::vector<double> SaveState() const override {
    return {factor_, bits_, static_cast<double>(round_)};
  }
  Status LoadState(std::span<const double> state) override {
    if (!IsState(state, 3) || !(state[0] >= 0 && state[2] >= 0)) {
      return CorruptData("the state of policy 'dq-sgd' is not its own");
    }
    factor_ = state[0];
    bits_ = state[1];
    round_ = static_cast<int64_t>(state[2]);
    return {};
  }

 private:
  std::vector<double> Wanted() const override {
    return std::vector<double>(context().layers, bits_);
  }
  void Take(const Observation& round) override {
    const double norm = std::sqrt(OwnSquare(round));
    // alpha^((N - n) / 2) without alpha^(N / 2), which is in the factor.
    const double gain = std::pow(alpha_, -static_cast<double>(round_) / 2);
    ++round_;
    if (factor_ == 0 && norm > 0) factor_ = LevelsOfBits(start_) / norm;
    // The gain of a long run may be infinite, which times a norm of 0 would be a NaN.
    const double levels = norm > 0 ? factor_ * gain * norm : 0;
    bits_ = std::min(BitsOfLevels(levels), kMostBitsAsked);
  }

  const double start_, alpha_;
  double factor_ = 0;  // 0: no norm has been seen
  double bits_;
  int64_t round_ = 0;
};

class Aqg : public BitPolicy {
 public:
  Aqg(const BitContext& bit_context, std::vector<double> list, double xi, size_t memory)
      : BitPolicy(bit_context),
        list_(std::move(list)),
        xi_(xi),
        memory_(memory),
        bits_(list_.back()) {}

  std::vector<double> SaveState() const override {
    std::vector<double> state = {bits_};
    state.insert(state.end(), squares_.begin(), squares_.end());
    return state;
  }
  Status LoadState(std::span<const double> state) override {
    if (state.empty() || state.size() > 1 + memory_ || !IsState(state, state.size())) {
      return CorruptData("the state of policy 'aqg' is not its own");
    }
    bits_ = state[0];
    squares_.assign(state.begin() + 1, state.end());
    return {};
  }

 private:
  std::vector<double> Wanted() const override {
    return std::vector<double>(context().layers, bits_);
  }
  void Take(const Observation& round) override {
    squares_.push_back(SquareOfMean(round));
    if (squares_.size() > memory_) squares_.pop_front();
    const double mean = std::accumulate(squares_.begin(), squares_.end(), 0.0) /
                        static_cast<double>(squares_.size());
    const auto workers = static_cast<double>(context().weights.size());
    const double allowed = xi_ * mean / (3 * workers * workers);
    const double own = OwnSquare(round);
    bits_ = list_.back();
    for (const double bits : list_) {
      if (DitherNmse(bits) * own > allowed) continue;
      bits_ = bits;
      return;
    }
  }

  const std::vector<double> list_;  // ascending
  const double xi_;
  const size_t memory_;
  double bits_;
  std::deque<double> squares_;  // of the mean gradients of the latest rounds
};

}  // namespace

std::unique_ptr<BitPolicy> MakeFedDq(PolicyKeys& keys, const BitContext& context) {
  const double resolution = keys.Number("resolution", .005, 1e-12, 1e6);
  return std::make_unique<FedDq>(context, resolution, keys.Number("start", 8, .5, 8));
}

std::unique_ptr<BitPolicy> MakeDqSgd(PolicyKeys& keys, const BitContext& context) {
  const double start = keys.Number("start", 4, 1.25, 8);
  return std::make_unique<DqSgd>(context, start, keys.Number("alpha", 1, .5, 1));
}

std::unique_ptr<BitPolicy> MakeAqg(PolicyKeys& keys, const BitContext& context) {
  std::vector<double> list = keys.List("bits", "2/4/8", .5, 8);
  const double xi = keys.Number("xi", .8, 1e-9, 1e9);
  const auto memory = static_cast<size_t>(keys.Number("memory", 10, 1, 1e4));
  return std::make_unique<Aqg>(context, std::move(list), xi, memory);
}

}  // namespace elastiquant::policy
