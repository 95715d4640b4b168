// Our rule: the least bits whose known error stays below a share of the noise of minibatches.
#include <cmath>

#include "elastiquant/policy/bit_rules.h"
#include "elastiquant/policy/dither_nmse.h"
#include "elastiquant/policy/minibatch_noise.h"

namespace elastiquant::policy {
namespace {

// A mean that gives all rounds the same weight at first, and later ones their share of it.
class RunningMean {
 public:
  void Add(double value, double keep) {
    weight_ = keep * weight_ + 1;
    mean_ += (value - mean_) / weight_;
  }
  double mean() const { return mean_; }

  void Save(std::vector<double>* state) const {
    state->push_back(weight_);
    state->push_back(mean_);
  }
  void Load(std::span<const double> state) {
    weight_ = state[0];
    mean_ = state[1];
  }

 private:
  double weight_ = 0, mean_ = 0;
};

class NoiseBits : public BitPolicy {
 public:
  NoiseBits(const BitContext& bit_context, double kappa, double start, double keep)
      : BitPolicy(bit_context),
        kappa_(kappa),
        start_(start),
        keep_(keep),
        layers_(bit_context.layers) {}

  std::vector<double> SaveState() const override {
    std::vector<double> state;
    for (const Layer& layer : layers_) {
      layer.own_error.Save(&state);
      layer.noise.Save(&state);
    }
    return state;
  }
  Status LoadState(std::span<const double> state) override {
    if (!IsState(state, 4 * layers_.size())) {
      return CorruptData("the state of policy 'noise' is not four numbers for each layer");
    }
    for (size_t l = 0; l < layers_.size(); ++l) {
      layers_[l].own_error.Load(state.subspan(4 * l, 2));
      layers_[l].noise.Load(state.subspan(4 * l + 2, 2));
    }
    return {};
  }

 private:
  struct Layer {
    RunningMean own_error;  // of this worker, were DitherNmse 1
    RunningMean noise;      // the variance of a minibatch's gradient
  };

  // A layer whose gradient is zero costs nothing at any rate.
  double BitsFor(const Layer& layer) const {
    if (!(layer.own_error.mean() > 0)) return start_;
    return DitherBitsFor(kappa_ * layer.noise.mean() / layer.own_error.mean());
  }
  std::vector<double> Wanted() const override {
    std::vector<double> bits;
    bits.reserve(layers_.size());
    for (const Layer& layer : layers_) bits.push_back(BitsFor(layer));
    return bits;
  }
  void Take(const Observation& round) override {
    for (size_t l = 0; l < layers_.size(); ++l) {
      const LayerObservation& seen = round.layers[l];
      const double noise = MinibatchNoise(context().weights, seen.mean_of_squares,
                                          seen.square_of_mean, seen.mean_error);
      const double own_error = seen.own_square * seen.nmse_ratio;
      if (!std::isfinite(noise) || !std::isfinite(own_error)) continue;
      layers_[l].noise.Add(noise, keep_);
      layers_[l].own_error.Add(own_error, keep_);
    }
  }

  const double kappa_, start_, keep_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<BitPolicy> MakeNoiseBits(PolicyKeys& keys, const BitContext& context) {
  const double kappa = keys.Number("kappa", .1, 1e-9, 1e9);
  const double start = keys.Number("start", 4, .5, 8);
  return std::make_unique<NoiseBits>(context, kappa, start, keys.Number("memory", .9, 0, 1));
}

}  // namespace elastiquant::policy
