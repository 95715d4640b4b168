// Draws the weights of a Dirichlet distribution.
#pragma once

#include <cstddef>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {

// Returns the logarithms, to base 2, of `count` independent variables with the distribution
// Gamma(alpha, 1): divided by their sum, the variables have the symmetric distribution
// Dirichlet(alpha, ..., alpha). Logarithms also hold those that are too small for a double, of
// which there are many where alpha is small. They are a function of the arguments alone, the
// same bits on every machine. `alpha` is finite and above 0.
std::vector<double> DrawLogGammas(StreamKey key, double alpha, size_t count);

// Returns the logarithm, to base 2, of the sum of what `logs` are the logarithms of. `logs` is
// not empty.
double LogOfSum(const std::vector<double>& logs);

}  // namespace elastiquant
