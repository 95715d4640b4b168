#include "elastiquant/theory/pair_gossip.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <utility>

namespace elastiquant::theory {
namespace {

using Matrix = Eigen::MatrixXd;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr int kMostRounds = 100000;
constexpr double kSettled = 1e-12;

// The mean products of x, d and c with each other, in this order, each as long as all workers'
// weights.
class Products {
 public:
  Products(const PairGossip& gossip, const Matrix& weights, const Matrix& constants)
      : gossip_(gossip),
        elements_(static_cast<Eigen::Index>(gossip.elements)),
        size_(weights.rows()),
        all_(Matrix::Zero(3 * size_, 3 * size_)),
        compute_(Matrix::Identity(3 * size_, 3 * size_)) {
    all_.topLeftCorner(size_, size_) = weights;
    all_.bottomRightCorner(size_, size_) = constants;
    // d = c - curvature x
    compute_.block(size_, size_, size_, size_).setZero();
    compute_.block(size_, 2 * size_, size_, size_).setIdentity();
    for (Eigen::Index w = 0; w < static_cast<Eigen::Index>(gossip.workers()); ++w) {
      const Eigen::Map<const RowMajor> own(gossip.curvatures[static_cast<size_t>(w)].data(),
                                           elements_, elements_);
      compute_.block(size_ + w * elements_, w * elements_, elements_, elements_) = -own;
    }
  }

  Matrix weights() const { return all_.topLeftCorner(size_, size_); }

  void Round() {
    all_ = (compute_ * all_ * compute_.transpose()).eval();
    const size_t workers = gossip_.workers();
    for (size_t w = 0; w < workers; ++w) {
      if (gossip_.asked[w].empty()) Move(w);
    }
    for (size_t w = 0; w < workers; ++w) {
      if (gossip_.asked[w].empty()) continue;
      Meet(w);
      Move(w);
    }
  }

 private:
  // A worker's rows, from that of its first weight or step on.
  Eigen::Index Of(size_t worker) const { return static_cast<Eigen::Index>(worker) * elements_; }

  void Move(size_t w) {
    all_.middleRows(Of(w), elements_) += all_.middleRows(size_ + Of(w), elements_);
    all_.middleCols(Of(w), elements_) += all_.middleCols(size_ + Of(w), elements_);
  }

  // The mean over all that it may ask.
  void Meet(size_t w) {
    const std::vector<size_t>& asked = gossip_.asked[w];
    Matrix mean = Matrix::Zero(all_.rows(), all_.cols());
    for (const size_t other : asked) mean += Averaged(w, other);
    all_ = mean / static_cast<double>(asked.size());
  }

  Matrix Averaged(size_t a, size_t b) const {
    const double half = gossip_.step / 2;
    Matrix averaged = all_;
    const Matrix rows =
        averaged.middleRows(Of(b), elements_) - averaged.middleRows(Of(a), elements_);
    averaged.middleRows(Of(a), elements_) += half * rows;
    averaged.middleRows(Of(b), elements_) -= half * rows;
    const Matrix cols =
        averaged.middleCols(Of(b), elements_) - averaged.middleCols(Of(a), elements_);
    averaged.middleCols(Of(a), elements_) += half * cols;
    averaged.middleCols(Of(b), elements_) -= half * cols;
    return averaged;
  }

  const PairGossip& gossip_;
  const Eigen::Index elements_, size_;
  Matrix all_, compute_;
};

}  // namespace

// Mean squares of any beginning end up in those that die out slowest.
double RateOf(const PairGossip& gossip) {
  const auto size = static_cast<Eigen::Index>(gossip.workers() * gossip.elements);
  const Matrix none = Matrix::Zero(size, size);
  Matrix squares = Matrix::Identity(size, size) / static_cast<double>(size);
  double rate = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    Products products(gossip, squares, none);
    products.Round();
    squares = products.weights();
    const double before = std::exchange(rate, squares.trace());
    if (rate == 0) break;
    squares /= rate;
    if (std::abs(rate - before) <= kSettled * rate) break;
  }
  return std::sqrt(rate);
}

std::vector<double> EndProductsOf(const PairGossip& gossip, std::span<const double> constants) {
  const auto size = static_cast<Eigen::Index>(gossip.workers() * gossip.elements);
  const Eigen::Map<const RowMajor> given(constants.data(), size, size);
  Products products(gossip, Matrix::Zero(size, size), given);
  Matrix before = products.weights();
  for (int round = 0; round < kMostRounds; ++round) {
    products.Round();
    const Matrix now = products.weights();
    const bool settled = (now - before).norm() <= kSettled * now.norm();
    before = now;
    if (settled) break;
  }
  const RowMajor end = before;
  return {end.data(), end.data() + end.size()};
}

}  // namespace elastiquant::theory
