// Which samples of a batch are worth sending, where workers send samples in place of gradients.
#pragma once

#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/policy/threshold_tracker.h"

namespace elastiquant::policy {

struct ImportanceOptions {
  double skipped = 0;     // the share of the samples that is not sent in the mean, in [0, 1)
  bool unbiased = false;  // whether each sample has a chance, and weighs more for it
};

// Takes a score of each sample, which is about the norm of its gradient, and says with which
// chance it is to be sent. With a threshold t, that is 1 if the score is above t and else 0:
// the "importance layer" of Hanna et al., "Quantization of distributed data for learning", 2020
// (arXiv 2012.07913), as far as its abstract tells. Where it is unbiased, which is ours, it is
// min(1, score / t), and what is sent counts for 1 / chance: the expected gradient is that of
// all samples. The threshold follows the scores so that `skipped` of the samples are not sent
// in the mean, either way.
class SampleImportance {
 public:
  explicit SampleImportance(const ImportanceOptions& options);

  // Returns the chances of a batch, each in [0, 1]. Scores must be at least 0; a sample whose
  // score is NaN is sent. Where `skipped` is 0 all are sent.
  std::vector<double> Chances(std::span<const double> scores);

  // LoadState fails with CorruptData, and changes nothing, if `state` is not what SaveState
  // returns.
  std::vector<double> SaveState() const;
  Status LoadState(std::span<const double> state);

 private:
  double ChanceAt(double threshold, double score) const;
  double FirstThreshold(std::span<const double> scores) const;

  const ImportanceOptions options_;
  ThresholdTracker tracker_;
  bool has_begun_ = false;  // whether the threshold is about one of the scores
};

}  // namespace elastiquant::policy
