#include "elastiquant/rates/logistic_problem.h"

#include <algorithm>
#include <cmath>

#include "elastiquant/base/random.h"

namespace elastiquant::rates {
namespace {

using Doubles = std::vector<double>;

double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

LogisticLoss::LogisticLoss(const Options& options)
    : features_(options.features),
      ridge_(options.ridge),
      smoothness_(options.smoothness),
      x_(options.samples, Doubles(options.features)),
      y_(options.samples) {
  const LaneKeys keys = MakeLaneKeys(DeriveKey(options.seed, options.worker, 0, 0));
  uint32_t draws = 0;
  const auto draw = [&] {
    return 2 * static_cast<double>(UniformFloat(RandomBits(keys, draws++))) - 1;
  };
  for (Doubles& x : x_) std::ranges::generate(x, draw);
  for (size_t i = 0; i < x_.size(); ++i) {
    y_[i] = x_[i][0] + x_[i][options.telling_feature] + draw() > 0 ? 1 : -1;
  }
  // The curvature is at most a quarter of that of the features' squares.
  const double factor = std::sqrt(4 * (smoothness_ - ridge_) / LargestSquare());
  for (Doubles& x : x_) {
    for (double& v : x) v *= factor;
  }
}

double LogisticLoss::Loss(std::span<const double> w, std::span<double> gradient) const {
  const auto samples = static_cast<double>(x_.size());
  for (size_t i = 0; i < features_; ++i) gradient[i] = ridge_ * w[i];
  double loss = ridge_ / 2 * Dot(w, w);
  for (size_t s = 0; s < x_.size(); ++s) {
    const double margin = y_[s] * Dot(x_[s], w);
    loss += std::log1p(std::exp(-std::abs(margin))) / samples;
    if (margin < 0) loss -= margin / samples;
    const double slope = -y_[s] / (1 + std::exp(margin)) / samples;
    for (size_t i = 0; i < features_; ++i) gradient[i] += slope * x_[s][i];
  }
  return loss;
}

std::vector<double> LogisticLoss::Curvature(std::span<const double> w) const {
  Doubles curvature(features_ * features_);
  for (size_t i = 0; i < features_; ++i) curvature[i * features_ + i] = ridge_;
  for (const Doubles& x : x_) {
    const double sigmoid = 1 / (1 + std::exp(-Dot(x, w)));
    const double weight = sigmoid * (1 - sigmoid) / static_cast<double>(x_.size());
    for (size_t i = 0; i < features_; ++i) {
      for (size_t j = 0; j < features_; ++j) {
        curvature[i * features_ + j] += weight * x[i] * x[j];
      }
    }
  }
  return curvature;
}

// The largest eigenvalue of X^T X / samples, by powers.
double LogisticLoss::LargestSquare() const {
  Doubles v(features_, 1), next(features_);
  double largest = 0;
  for (int k = 0; k < 500; ++k) {
    std::ranges::fill(next, 0);
    for (const Doubles& x : x_) {
      const double along = Dot(x, v) / static_cast<double>(x_.size());
      for (size_t i = 0; i < features_; ++i) next[i] += along * x[i];
    }
    largest = std::sqrt(Dot(next, next));
    for (size_t i = 0; i < features_; ++i) v[i] = next[i] / largest;
  }
  return largest;
}

LogisticProblem::LogisticProblem(const std::vector<LogisticLoss::Options>& workers)
    : ridge_(workers[0].ridge) {
  double smoothness = 0;
  for (const LogisticLoss::Options& own : workers) {
    smoothness += workers_.emplace_back(own).smoothness();
  }
  rate_ = static_cast<double>(workers_.size()) / smoothness;
}

double LogisticProblem::Loss(std::span<const double> w, std::span<double> gradient) const {
  Doubles own(w.size());
  std::ranges::fill(gradient, 0);
  double loss = 0;
  const auto count = static_cast<double>(workers_.size());
  for (const LogisticLoss& worker : workers_) {
    loss += worker.Loss(w, own) / count;
    for (size_t i = 0; i < w.size(); ++i) gradient[i] += own[i] / count;
  }
  return loss;
}

// Nesterov's method for strongly convex losses, until nothing moves.
std::vector<double> LogisticProblem::Least() const {
  const double root = std::sqrt(ridge_ * rate_);
  Doubles w(workers_[0].features()), at = w, gradient(w.size());
  for (int k = 0; k < 20000; ++k) {
    Loss(at, gradient);
    if (Dot(gradient, gradient) < 1e-26) break;
    for (size_t i = 0; i < w.size(); ++i) {
      const double next = at[i] - rate_ * gradient[i];
      at[i] = next + (1 - root) / (1 + root) * (next - w[i]);
      w[i] = next;
    }
  }
  return w;
}

}  // namespace elastiquant::rates
