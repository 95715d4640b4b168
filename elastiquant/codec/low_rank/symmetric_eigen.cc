#include "elastiquant/codec/low_rank/symmetric_eigen.h"

// Vectors of another length would sum in another order.
#define EIGEN_DONT_VECTORIZE
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Eigenvalues>

namespace elastiquant {

Status SymmetricEigen(std::span<double> matrix, std::span<double> values) {
  // So would blocks as large as this machine's caches.
  static const bool fixed_blocks = [] {
    Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);
    return true;
  }();
  static_cast<void>(fixed_blocks);
  const auto k = static_cast<Eigen::Index>(values.size());
  Eigen::Map<Eigen::MatrixXd> in_place(matrix.data(), k, k);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(in_place);
  if (solver.info() != Eigen::Success) {
    return Internal("the eigenvalues of a " + std::to_string(k) + " x " + std::to_string(k) +
                    " matrix did not converge");
  }
  in_place = solver.eigenvectors();
  Eigen::Map<Eigen::VectorXd>(values.data(), k) = solver.eigenvalues();
  return Status::Ok();
}

}  // namespace elastiquant
