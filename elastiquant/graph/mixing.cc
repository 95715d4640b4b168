#include "elastiquant/graph/mixing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "elastiquant/codec/low_rank/symmetric_eigen.h"

namespace elastiquant {
namespace {

Mixing Zeros(size_t workers) { return {workers, std::vector<double>(workers * workers, 0)}; }

void Add(Mixing* mixing, size_t i, size_t j, double weight) {
  mixing->weights[i * mixing->workers + j % mixing->workers] += weight;
}

constexpr double kSlack = 1e-6;

Status BadSum(const char* what, size_t index, double sum) {
  return InvalidArgument(std::string("the weights are not those of an average: ") + what + " " +
                         std::to_string(index) + " adds up to " + std::to_string(sum) +
                         " where it must be 1");
}

// Returns how many powers of two are below n. These are the distances in exponential graphs.
size_t HopsOf(size_t workers) {
  return workers < 2 ? 0 : static_cast<size_t>(std::bit_width(workers - 1));
}

// Ascending; Eigen does not fail on finite matrices.
std::vector<double> Eigenvalues(std::vector<double> symmetric, size_t n) {
  std::vector<double> values(n);
  if (!SymmetricEigen(symmetric, values).ok()) std::ranges::fill(values, std::nan(""));
  return values;
}

// The largest singular value of n x n matrix `a`.
double Norm(const std::vector<double>& a, size_t n) {
  std::vector<double> square(n * n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t k = 0; k < n; ++k) square[i * n + j] += a[k * n + i] * a[k * n + j];
    }
  }
  return std::sqrt(std::max(0.0, Eigenvalues(std::move(square), n).back()));
}

}  // namespace

Mixing IdentityMixing(size_t workers) {
  Mixing mixing = Zeros(workers);
  for (size_t i = 0; i < workers; ++i) mixing(i, i) = 1;
  return mixing;
}

Mixing RingMixing(size_t workers) {
  std::vector<bool> linked(workers * workers, false);
  for (size_t i = 0; i < workers; ++i) {
    const size_t next = (i + 1) % workers;
    linked[i * workers + next] = linked[next * workers + i] = true;
  }
  return MetropolisMixing(workers, linked);
}

Mixing MetropolisMixing(size_t workers, const std::vector<bool>& linked) {
  const auto is_linked = [&](size_t i, size_t j) { return i != j && linked[i * workers + j]; };
  std::vector<double> degree(workers, 0);
  for (size_t i = 0; i < workers; ++i) {
    for (size_t j = 0; j < workers; ++j) degree[i] += is_linked(i, j) ? 1 : 0;
  }
  Mixing mixing = Zeros(workers);
  for (size_t i = 0; i < workers; ++i) {
    double rest = 1;
    for (size_t j = 0; j < workers; ++j) {
      if (!is_linked(i, j)) continue;
      const double weight = 1 / (1 + std::max(degree[i], degree[j]));
      Add(&mixing, i, j, weight);
      rest -= weight;
    }
    Add(&mixing, i, i, rest);
  }
  return mixing;
}

Mixing TorusMixing(size_t rows, size_t columns) {
  const size_t n = rows * columns;
  std::vector<bool> linked(n * n, false);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      const size_t i = r * columns + c;
      for (const size_t j : {(r + 1) % rows * columns + c, r * columns + (c + 1) % columns}) {
        linked[i * n + j] = linked[j * n + i] = true;
      }
    }
  }
  return MetropolisMixing(n, linked);
}

Mixing ExponentialMixing(size_t workers) {
  const size_t hops = HopsOf(workers);
  const double weight = 1 / static_cast<double>(hops + 1);
  Mixing mixing = Zeros(workers);
  for (size_t i = 0; i < workers; ++i) {
    Add(&mixing, i, i, weight);
    for (size_t t = 0; t < hops; ++t) Add(&mixing, i, i + (size_t{1} << t), weight);
  }
  return mixing;
}

Mixing OnePeerMixing(size_t workers, size_t step) {
  const size_t hops = HopsOf(workers);
  if (hops == 0) return IdentityMixing(workers);
  Mixing mixing = Zeros(workers);
  for (size_t i = 0; i < workers; ++i) {
    Add(&mixing, i, i, 0.5);
    Add(&mixing, i, i + (size_t{1} << (step % hops)), 0.5);
  }
  return mixing;
}

Mixing LazyMixing(const Mixing& mixing) {
  Mixing lazy = mixing;
  for (double& weight : lazy.weights) weight /= 2;
  for (size_t i = 0; i < mixing.workers; ++i) Add(&lazy, i, i, 0.5);
  return lazy;
}

Mixing ProductOf(const std::vector<Mixing>& steps) {
  const size_t n = steps.front().workers;
  Mixing product = IdentityMixing(n);
  for (const Mixing& step : steps) {
    Mixing next = Zeros(n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < n; ++k) {
        if (step(i, k) == 0) continue;
        for (size_t j = 0; j < n; ++j) next(i, j) += step(i, k) * product(k, j);
      }
    }
    product = std::move(next);
  }
  return product;
}

Status CheckColumns(const Mixing& mixing) {
  for (size_t j = 0; j < mixing.workers; ++j) {
    double sum = 0;
    for (size_t i = 0; i < mixing.workers; ++i) {
      if (!(mixing(i, j) >= 0) || !std::isfinite(mixing(i, j))) {
        return InvalidArgument("the weight in row " + std::to_string(i) + ", column " +
                               std::to_string(j) + " must be a number that is not negative");
      }
      sum += mixing(i, j);
    }
    if (std::abs(sum - 1) > kSlack) return BadSum("column", j, sum);
  }
  return {};
}

Status CheckDoublyStochastic(const Mixing& mixing) {
  for (size_t i = 0; i < mixing.workers; ++i) {
    double sum = 0;
    for (size_t j = 0; j < mixing.workers; ++j) sum += mixing(i, j);
    if (!(std::abs(sum - 1) <= kSlack)) return BadSum("row", i, sum);
  }
  return CheckColumns(mixing);
}

bool IsSymmetric(const Mixing& mixing) {
  for (size_t i = 0; i < mixing.workers; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (std::abs(mixing(i, j) - mixing(j, i)) > 1e-12) return false;
    }
  }
  return true;
}

std::vector<double> SymmetricEigenvalues(const Mixing& mixing) {
  return Eigenvalues(mixing.weights, mixing.workers);
}

MixingFactors FactorsOf(const Mixing& mixing) {
  const size_t n = mixing.workers;
  std::vector<double> from_mean = mixing.weights, from_self = mixing.weights;
  std::vector<double> symmetric(n * n);
  for (size_t i = 0; i < n; ++i) {
    from_self[i * n + i] -= 1;
    for (size_t j = 0; j < n; ++j) {
      from_mean[i * n + j] -= 1 / static_cast<double>(n);
      symmetric[i * n + j] = (mixing(i, j) + mixing(j, i)) / 2;
    }
  }
  MixingFactors factors;
  factors.contraction = Norm(from_mean, n);
  factors.gap = 1 - factors.contraction;
  factors.distance = Norm(from_self, n);
  factors.least_eigenvalue = Eigenvalues(std::move(symmetric), n).front();
  return factors;
}

}  // namespace elastiquant
