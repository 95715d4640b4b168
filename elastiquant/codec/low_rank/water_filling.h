// The probabilities of ATOMO (Wang et al., NeurIPS 2018): components of magnitudes m_i are sent
// with probability p_i, scaled by 1 / p_i, at the variance sum m_i^2 (1 / p_i - 1).
#pragma once

#include <span>

namespace elastiquant {

// The p_i in [0, 1] with the least variance among those whose sum is min(budget, the number of
// magnitudes that are not 0): p_i = 1 for the largest, p_i proportional to m_i for the rest.
// `magnitudes` descend and are not negative; budget > 0.
void WaterFill(std::span<const double> magnitudes, double budget,
               std::span<double> probabilities);

}  // namespace elastiquant
