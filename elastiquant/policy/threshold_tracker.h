// A running estimate of the threshold of magnitude above which a wanted share of coordinates
// lies: the common threshold of DAGC-A, for which the paper says no more than that the mean
// ratio shall be that of the budget. How it is found is ours.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant::policy {

// Raises the threshold after rounds in which more than the budget was sent, and lowers it after
// the others. It is a pure function of the numbers it is given: workers that give the same ones
// have the same threshold, bit for bit on machines with the same `exp`.
//
// The numbers must be agreed, because workers need a *common* threshold: would each follow its
// own count, each would end with the same ratio, and the thresholds would lose what DAGC-A
// wants of them, that workers with more data send more. The share that is sent is one number of
// a worker and round, so it can travel with the messages, and is known one round later than it
// arises.
//
// log(threshold) moves by kGain * (sent / target - 1), upwards at most by kGain * kMostPaid in
// one round; what is cut off is made up for in later rounds, up to kMostUnpaid budgets of a
// round. Summed up, the moves are the change of a threshold that stays within the range of the
// values. Therefore the mean of what was sent approaches the budget like 1 / rounds, whatever
// the values are, as long as the unpaid part keeps below its bound (this is quantile tracking
// by online gradient descent, as in Gibbs and Candes, "Adaptive Conformal Inference", NeurIPS
// 2021, proposition 4.1, in logarithms).
class ThresholdTracker {
 public:
  // Less follows too slowly. Twice as much swings, because coordinates that a high threshold
  // holds back come all at once when it falls (at a budget of 1 %: by as much as the budget).
  static constexpr double kGain = .05;
  static constexpr double kMostPaid = 4;
  static constexpr double kMostUnpaid = 8;
  // The range of the threshold: codecs take it as a float.
  static constexpr double kLeast = std::numeric_limits<float>::min();
  static constexpr double kMost = std::numeric_limits<float>::max();

  // `target`, in (0, 1]: the share of coordinates that shall be sent. `threshold`, above 0: an
  // estimate to begin with.
  ThresholdTracker(double target, double threshold) : target_(target), threshold_(threshold) {}

  // Takes the share of coordinates, in [0, 1], that the workers have sent in a round, in the
  // mean over workers. Values that are not in [0, 1] change nothing.
  void Observe(double sent);
  double threshold() const { return threshold_; }  // positive and a normal float, always

  // Returns the threshold and what is unpaid. LoadState fails with kCorruptData, and changes
  // nothing, if `state` is not what SaveState returns.
  std::vector<double> SaveState() const { return {threshold_, unpaid_}; }
  Status LoadState(std::span<const double> state);

 private:
  double target_;
  double threshold_;
  double unpaid_ = 0;  // in budgets of a round
};

}  // namespace elastiquant::policy
