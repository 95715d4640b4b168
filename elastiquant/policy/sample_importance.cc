#include "elastiquant/policy/sample_importance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace elastiquant::policy {

SampleImportance::SampleImportance(const ImportanceOptions& options)
    : options_(options), tracker_(1 - options.skipped, 1) {}

double SampleImportance::ChanceAt(double threshold, double score) const {
  if (!(score <= threshold)) return 1;
  return options_.unbiased ? score / threshold : 0;
}

// The threshold by which as many samples of the first batch are sent as shall be in the mean.
double SampleImportance::FirstThreshold(std::span<const double> scores) const {
  double least = 0, most = 0;
  for (const double score : scores) {
    if (std::isfinite(score)) most = std::max(most, score);
  }
  if (!(most > ThresholdTracker::kLeast)) return 1;
  // Chances fall as the threshold rises.
  if (options_.unbiased) most /= 1 - options_.skipped;
  for (int halving = 0; halving < 50; ++halving) {
    const double middle = (least + most) / 2;
    double sent = 0;
    for (const double score : scores) sent += ChanceAt(middle, score);
    const bool too_many = sent > (1 - options_.skipped) * static_cast<double>(scores.size());
    (too_many ? least : most) = middle;
  }
  return std::max(most, ThresholdTracker::kLeast);
}

std::vector<double> SampleImportance::Chances(std::span<const double> scores) {
  std::vector<double> chances(scores.size(), 1);
  if (options_.skipped == 0 || scores.empty()) return chances;
  if (!has_begun_) {
    tracker_ = ThresholdTracker(1 - options_.skipped, FirstThreshold(scores));
    has_begun_ = true;
  }
  std::ranges::transform(scores, chances.begin(), [this](double score) {
    return ChanceAt(tracker_.threshold(), score);
  });
  tracker_.Observe(std::accumulate(chances.begin(), chances.end(), 0.0) /
                   static_cast<double>(chances.size()));
  return chances;
}

std::vector<double> SampleImportance::SaveState() const {
  std::vector<double> state = tracker_.SaveState();
  state.push_back(has_begun_ ? 1 : 0);
  return state;
}

Status SampleImportance::LoadState(std::span<const double> state) {
  if (state.empty() || (state.back() != 0 && state.back() != 1)) {
    return CorruptData("the state of the importance of samples is damaged");
  }
  EQ_RETURN_IF_ERROR(tracker_.LoadState(state.first(state.size() - 1)));
  has_begun_ = state.back() == 1;
  return {};
}

}  // namespace elastiquant::policy
