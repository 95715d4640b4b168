#include "elastiquant/policy/threshold_tracker.h"

#include <algorithm>
#include <cmath>

namespace elastiquant::policy {

void ThresholdTracker::Observe(double sent) {
  if (!(sent >= 0 && sent <= 1)) return;
  unpaid_ = std::clamp(unpaid_ + sent / target_ - 1, -kMostUnpaid, kMostUnpaid);
  const double paid = std::min(unpaid_, kMostPaid);
  unpaid_ -= paid;
  threshold_ = std::clamp(threshold_ * std::exp(kGain * paid), kLeast, kMost);
}

Status ThresholdTracker::LoadState(std::span<const double> state) {
  if (state.size() != 2 || !(state[0] >= kLeast && state[0] <= kMost) ||
      !(std::abs(state[1]) <= kMostUnpaid)) {
    return CorruptData("the state of a threshold is not a threshold and what is unpaid");
  }
  threshold_ = state[0];
  unpaid_ = state[1];
  return {};
}

}  // namespace elastiquant::policy
