#include "elastiquant/theory/linear_gossip.h"

#include <Eigen/Dense>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>

namespace elastiquant::theory {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;
// As callers hand matrices over.
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// s <- by s + of c. The state s has the weights first, and then what the algorithm remembers;
// c are the constants.
struct Affine {
  Matrix by, of;
};

Affine After(const Affine& first, const Affine& second) {
  return {second.by * first.by, second.by * first.of + second.of};
}

Matrix MixedBy(const Mixing& mixing, double step) {
  const auto n = static_cast<Eigen::Index>(mixing.workers);
  Matrix mixed = (1 - step) * Matrix::Identity(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < n; ++j) {
      mixed(i, j) += step * mixing(static_cast<size_t>(i), static_cast<size_t>(j));
    }
  }
  return mixed;
}

// The same for each element of the weights.
Matrix OfElements(const Matrix& workers, Eigen::Index elements) {
  Matrix all = Matrix::Zero(workers.rows() * elements, workers.cols() * elements);
  for (Eigen::Index i = 0; i < workers.rows(); ++i) {
    for (Eigen::Index j = 0; j < workers.cols(); ++j) {
      all.block(i * elements, j * elements, elements, elements) =
          workers(i, j) * Matrix::Identity(elements, elements);
    }
  }
  return all;
}

// Push-sum's weights at the beginning of a period, when they have settled: 1 on all workers
// where rows add up to 1.
Vector SettledSums(const std::vector<Matrix>& mixed) {
  Matrix period = Matrix::Identity(mixed[0].rows(), mixed[0].rows());
  for (const Matrix& one : mixed) period = one * period;
  for (int doubling = 0; doubling < 24; ++doubling) {
    period = (period * period).eval();
    period.array().rowwise() /= period.colwise().sum().array().eval();  // against rounding
  }
  return period * Vector::Ones(period.rows());
}

// One round, of vectors that are as long as all workers' weights: d = c - A x, with `kept` = I
// - A, and G.
Affine RoundOf(const LinearGossip& gossip, const Matrix& a, const Matrix& g) {
  const Eigen::Index n = a.rows();
  const Matrix one = Matrix::Identity(n, n), none = Matrix::Zero(n, n), kept = one - a;
  const auto two_by_two = [](const Matrix& xx, const Matrix& xm, const Matrix& mx,
                             const Matrix& mm) {
    Matrix all(2 * xx.rows(), 2 * xx.rows());
    all << xx, xm, mx, mm;
    return all;
  };
  const auto stacked = [](const Matrix& x, const Matrix& m) {
    Matrix all(2 * x.rows(), x.cols());
    all << x, m;
    return all;
  };
  switch (gossip.recursion) {
    case Recursion::kPlain:
      return {g - a, one};
    case Recursion::kReplicas:
      return {g * kept, g};
    case Recursion::kD2:  // remembers x + d, which in the first round is x
      return {two_by_two(g * (one + kept), -g, kept, none), stacked(g, one)};
    case Recursion::kTracking:  // remembers G y - d
      return {two_by_two(g * kept, g, (one - g) * a, g), stacked(g, g - one)};
    case Recursion::kLate:  // remembers u
      return {two_by_two(kept, g - one, kept, none), stacked(one, one)};
    case Recursion::kNoLoCo: {  // remembers m
      const Matrix moved = gossip.outer_rate * (g * kept - one), into = gossip.outer_rate * g;
      const Matrix momentum = gossip.outer_momentum * one;
      return {two_by_two(one + moved, momentum, moved, momentum), stacked(into, into)};
    }
  }
  return {one, none};
}

struct Period {
  Affine rounds;
  Vector sums;          // push-sum's, by worker
  double settling = 0;  // what their distance from the settled ones is multiplied by
};

// The second largest magnitude of the eigenvalues, of which 1 is the largest.
double SecondOf(const Matrix& mixed) {
  Vector magnitudes = Eigen::EigenSolver<Matrix>(mixed, false).eigenvalues().cwiseAbs();
  std::ranges::sort(magnitudes, std::greater<>());
  return magnitudes.size() > 1 ? magnitudes(1) : 0;
}

// A of d = c - A x, in which push-sum's weights make x comparable.
Matrix CurvaturesOf(const LinearGossip& gossip, const Vector& sums) {
  const auto elements = static_cast<Eigen::Index>(gossip.elements);
  Matrix a = Matrix::Zero(sums.size() * elements, sums.size() * elements);
  for (Eigen::Index w = 0; w < sums.size(); ++w) {
    const Eigen::Map<const RowMajor> own(gossip.curvatures[static_cast<size_t>(w)].data(),
                                         elements, elements);
    a.block(w * elements, w * elements, elements, elements) = own / sums(w);
  }
  return a;
}

Period PeriodOf(const LinearGossip& gossip) {
  const auto elements = static_cast<Eigen::Index>(gossip.elements);
  std::vector<Matrix> mixed;
  mixed.reserve(gossip.mixings.size());
  for (const Mixing& one : gossip.mixings) mixed.push_back(MixedBy(one, gossip.step));
  Period period{.rounds = {}, .sums = SettledSums(mixed)};
  Vector sums = period.sums;
  const auto workers = static_cast<Eigen::Index>(gossip.workers());
  Matrix together = Matrix::Identity(workers, workers);
  for (size_t t = 0; t < mixed.size(); ++t) {
    const Matrix& g = mixed[t];
    const Matrix a = CurvaturesOf(gossip, sums);
    // What comes late was sent by the mixing of the round before.
    const bool is_late = gossip.recursion == Recursion::kLate;
    const Matrix& heard = is_late ? mixed[(t + mixed.size() - 1) % mixed.size()] : g;
    const Affine round = RoundOf(gossip, a, OfElements(heard, elements));
    period.rounds = period.rounds.by.size() == 0 ? round : After(period.rounds, round);
    sums = (g * sums).eval();
    together = (g * together).eval();
  }
  const bool has_sums = (sums - Vector::Ones(workers)).cwiseAbs().maxCoeff() > 1e-9;
  if (has_sums) period.settling = SecondOf(together);
  return period;
}

// Takes the mean of the workers out of each vector of the state, before and after.
Matrix BetweenWorkers(const Matrix& by, Eigen::Index workers, Eigen::Index elements) {
  const Matrix from_mean = Matrix::Identity(workers, workers) -
                           Matrix::Constant(workers, workers, 1 / static_cast<double>(workers));
  const Matrix one = OfElements(from_mean, elements);
  Matrix all = Matrix::Zero(by.rows(), by.cols());
  for (Eigen::Index i = 0; i < by.rows(); i += one.rows()) {
    all.block(i, i, one.rows(), one.rows()) = one;
  }
  return all * by * all;
}

// What stays as it is in a round, and was 0 in the beginning, as products of these rows with
// the state: the workers' mean of x - (x' + d') under D^2, and of G y - d under gradient
// tracking.
Matrix Conserved(const LinearGossip& gossip) {
  const auto workers = static_cast<Eigen::Index>(gossip.workers());
  const auto elements = static_cast<Eigen::Index>(gossip.elements);
  const Matrix mean = OfElements(Matrix::Ones(1, workers), elements);
  Matrix rows(elements, 2 * mean.cols());
  switch (gossip.recursion) {
    case Recursion::kD2:
      rows << mean, -mean;
      return rows;
    case Recursion::kTracking:
      rows << Matrix::Zero(mean.rows(), mean.cols()), mean;
      return rows;
    default:
      return Matrix(0, 0);
  }
}

}  // namespace

double RateOf(const LinearGossip& gossip, Among among) {
  const auto elements = static_cast<Eigen::Index>(gossip.elements);
  const Period period = PeriodOf(gossip);
  Matrix by = period.rounds.by;
  if (among == Among::kDifferences) {
    by = BetweenWorkers(by, static_cast<Eigen::Index>(gossip.workers()), elements);
  }
  const Eigen::VectorXcd values = Eigen::EigenSolver<Matrix>(by, false).eigenvalues();
  std::vector<std::complex<double>> counted(values.begin(), values.end());
  if (among == Among::kAll) {
    // What is conserved has eigenvalues of 1.
    const auto from_one = [](std::complex<double> z) { return std::abs(z - 1.0); };
    std::ranges::sort(counted, {}, from_one);
    counted.erase(counted.begin(), counted.begin() + Conserved(gossip).rows());
  }
  double largest = period.settling;
  for (const std::complex<double> z : counted) largest = std::max(largest, std::abs(z));
  return std::pow(largest, 1 / static_cast<double>(gossip.mixings.size()));
}

std::vector<double> EndOf(const LinearGossip& gossip, std::span<const double> constants,
                          size_t columns) {
  const Period period = PeriodOf(gossip);
  const auto rows = static_cast<Eigen::Index>(gossip.workers() * gossip.elements);
  const auto width = static_cast<Eigen::Index>(columns);
  const Eigen::Map<const RowMajor> c(constants.data(), rows, width);
  const Matrix kept = Conserved(gossip);
  const Matrix& by = period.rounds.by;
  Matrix system(by.rows() + kept.rows(), by.cols());
  system.topRows(by.rows()) = Matrix::Identity(by.rows(), by.cols()) - by;
  if (kept.rows() > 0) system.bottomRows(kept.rows()) = kept;
  Matrix sides = Matrix::Zero(system.rows(), width);
  sides.topRows(by.rows()) = period.rounds.of * c;
  const Matrix state = system.colPivHouseholderQr().solve(sides);
  RowMajor end = state.topRows(rows);
  for (Eigen::Index row = 0; row < rows; ++row) {
    end.row(row) /= period.sums(row / static_cast<Eigen::Index>(gossip.elements));
  }
  return {end.data(), end.data() + end.size()};
}

}  // namespace elastiquant::theory
