// How many bits a coordinate each layer gets of each worker in each round: one interface for
// the published rules and for ours. A policy sees what the round before has shown and decides
// about the next one; it knows no codec, clock, thread or network.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant::policy {

// Decisions are multiples of this, rounded up, so that what a rule promises of the error holds
// and a run needs few codecs.
inline constexpr double kBitStep = .25;

// What is seen of one layer, or of one group of layers that travels together, in a round.
struct LayerObservation {
  double own_square = 0;  // |g_i|^2 of this worker's gradient
  double own_range = 0;   // its largest coordinate less its smallest
  // With the weights p of the mean: sum p_i |g_i|^2 over the workers, |sum p_i g_i|^2 as it was
  // received, and the variance that compression gave the latter, as far as it is known.
  double mean_of_squares = 0;
  double square_of_mean = 0;
  double mean_error = 0;
  // The error of this worker's frame over what DitherNmse says for its bits; 1 if not measured.
  double nmse_ratio = 1;
};

// What is seen of a round. Numbers that are not of this worker alone are the same on all.
struct Observation {
  double loss = 0;       // mean over the workers
  double step_size = 1;  // what the message is multiplied by when it moves the weights
  std::vector<LayerObservation> layers = {};
};

// What does not change in a run.
struct BitContext {
  std::vector<double> weights = {};  // of the workers in the mean; they add up to 1
  size_t worker = 0;                 // which one decides
  size_t layers = 1;
  int64_t rounds = 0;  // that the run will have; 0 if nobody knows
};

// Turns numbers of levels into bits and back: with one bit for the sign, s levels above zero
// take log2(s + 1) + 1 bits (Yan et al., "DQ-SGD", below eq. 4).
double BitsOfLevels(double levels);
double LevelsOfBits(double bits);

class BitPolicy {
 public:
  virtual ~BitPolicy() = default;

  // Returns the canonical text that ParseBitPolicy takes.
  const std::string& spec() const { return spec_; }
  // Returns what this worker spends in the next round: for each layer a multiple of kBitStep
  // between `least` and `most`.
  std::vector<double> Bits() const;
  // Takes what a round has shown. Rounds whose loss is not a number are left out, and so are
  // those with another number of layers than the context has.
  void Observe(const Observation& round);

  // LoadState fails with kCorruptData, and changes nothing, if `state` cannot be what SaveState
  // returns of the same policy.
  virtual std::vector<double> SaveState() const = 0;
  virtual Status LoadState(std::span<const double> state) = 0;

 protected:
  explicit BitPolicy(BitContext context) : context_(std::move(context)) {}
  const BitContext& context() const { return context_; }

 private:
  friend Result<std::unique_ptr<BitPolicy>> ParseBitPolicy(std::string_view text,
                                                           const BitContext& context);

  virtual std::vector<double> Wanted() const = 0;  // by layer, any numbers
  virtual void Take(const Observation& round) = 0;

  const BitContext context_;
  // ParseBitPolicy sets these.
  std::string spec_;
  double least_ = 0, most_ = 0;
};

// Makes a policy from NAME[:KEY=VALUE,...]. Every one takes least=0.5 and most=8, the range of
// its bits. Fails with kInvalidArgument, which lists what is valid.
//
//   fixed:bits=2
//     The same bits always.
//   adaquantfl:start=2
//     Jhunjhunwala et al., "Adaptive quantization of model updates for communication-efficient
//     federated learning", ICASSP 2021: s_k = ceil(sqrt(f_0 / f_k) s_0) levels, more as the
//     loss f falls. Theirs is the loss over all data, ours that of the round's minibatches.
//   dadaquant:start=1,cap=16,psi=0.9,phi=0,time=yes,client=yes
//     Hoenig, Zhao and Mullins, "DAdaQuant", ICML 2022. Time: the levels q double, up
//     to `cap`, when the running mean of the loss (which keeps `psi` of itself) is not below
//     what it was phi rounds ago and q has not changed since; phi=0 is a tenth of the rounds.
//     Client: worker i has sqrt(a / b) w_i^(2/3) levels, rounded, where a = sum w^(2/3), b =
//     sum w^2 / q^2: the fewest levels in all for the variance that q levels everywhere would
//     give the mean.
//   feddq:resolution=0.005,start=8
//     Qu, Song and Tsui, "FedDQ", arXiv 2110.02291, and their code: ceil(log2(range /
//     resolution)) bits for each layer of each worker, fewer as updates shrink. The range is
//     that of the update, so here of step_size times the gradient. `start` is for the first
//     round.
//   dq-sgd:start=4,alpha=1
//     Yan et al., "DQ-SGD", arXiv 2107.14575; eq. 18 and 20 of the version of October 2020: B_n
//     = log2(k alpha^((N-n)/2) |g_n| + 1) + 1 with N rounds, alpha = 1 for losses that are not
//     convex. k follows from a total budget if all norms are known beforehand, and how it is
//     found otherwise is not published: here it gives the first round `start` bits.
//   aqg:bits=2/4/8,xi=0.8,memory=10
//     Mao et al., "Communication-efficient federated learning with adaptive quantization", ACM
//     TIST 2022. Known of it is that each worker takes in each round the fewest bits of a list
//     that its own gradient's change allows, with the trigger of LAQ (Sun et al., NeurIPS
//     2019). The rule itself was not to be had: this one is our reading. The error of the
//     worker's gradient shall be below a third of LAQ's threshold, xi / M^2 of the mean of
//     |mean gradient|^2 over the last `memory` rounds, for M workers; nobody keeps silent.
//   noise:kappa=0.1,start=4,memory=0.9
//     Ours: the least bits b for which NMSE(b) |g|^2 <= kappa sigma^2, for each layer of each
//     worker. sigma^2 is the variance of a minibatch's gradient (minibatch_noise.h), NMSE(b) is
//     known (dither_nmse.h, and nmse_ratio); both sides are running means that keep `memory` of
//     themselves. So compression adds at most kappa of the noise that training has anyway.
Result<std::unique_ptr<BitPolicy>> ParseBitPolicy(std::string_view text,
                                                  const BitContext& context);

// Returns whether the policy that the text names decides by the loss, without which it learns
// nothing.
bool FollowsLoss(std::string_view text);

// The levels of DAdaQuant's clients before they are rounded, for weights above 0.
std::vector<double> ClientLevels(double levels, std::span<const double> weights);

}  // namespace elastiquant::policy
