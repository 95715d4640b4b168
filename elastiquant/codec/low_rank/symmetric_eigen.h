// Eigenvectors of symmetric matrices.
#pragma once

#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Of the k x k matrix whose lower triangle stands in `matrix`, column after column, which
// becomes the orthonormal eigenvectors, column after column; `values` are the k eigenvalues in
// ascending order. The same bits on every machine.
Status SymmetricEigen(std::span<double> matrix, std::span<double> values);

}  // namespace elastiquant
