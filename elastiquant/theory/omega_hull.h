// The least concave function above the lengths of Elias omega codes.
#pragma once

#include <vector>

namespace elastiquant::theory {

// A line with alpha + beta k >= |omega(k)| for 1 <= k <= 2^32.
struct OmegaLine {
  double alpha = 0, beta = 0;
};

// Returns the edges of the hull, from the steepest to the flat one over the longest code.
const std::vector<OmegaLine>& OmegaHull();

// Returns the hull at k >= 1, which need not be an integer: by Jensen E|omega(K)| <=
// OmegaHullAt(E K).
double OmegaHullAt(double k);

}  // namespace elastiquant::theory
