#include "elastiquant/policy/accordion.h"

#include <cmath>

namespace elastiquant::policy {

double Accordion::Next(double norm) {
  // A previous norm of 0 leaves no number that is below the threshold.
  const bool quiet = previous_ && std::abs(norm - *previous_) / *previous_ < options_.threshold;
  previous_ = norm;
  return quiet ? options_.least : options_.most;
}

std::vector<double> Accordion::SaveState() const {
  return previous_ ? std::vector<double>{*previous_} : std::vector<double>{};
}

Status Accordion::LoadState(std::span<const double> state) {
  if (state.size() > 1 || (state.size() == 1 && !(state[0] >= 0 && std::isfinite(state[0])))) {
    return CorruptData("the state of accordion is not a norm");
  }
  previous_ = state.empty() ? std::nullopt : std::optional(state[0]);
  return {};
}

}  // namespace elastiquant::policy
