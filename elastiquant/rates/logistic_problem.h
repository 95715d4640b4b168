// Logistic regression that workers do together, each on samples of its own: a problem small
// enough to run algorithms on that are told apart from all else a training run has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace elastiquant::rates {

// One worker's loss: the mean over its samples of log(1 + exp(-y <x, w>)), and ridge/2 |w|^2.
// Features are uniform, and scaled so that the loss has the given smoothness L: no curvature
// of it is larger, for any weights.
class LogisticLoss {
 public:
  struct Options {
    size_t samples = 50, features = 50;  // at least 1, and 2
    double ridge = 1e-3, smoothness = 1;
    // Labels are the sign of the sum of the first feature, of this one, and of noise.
    size_t telling_feature = 1;
    uint64_t seed = 1;
    uint64_t worker = 0;  // workers draw independently
  };
  explicit LogisticLoss(const Options& options);

  size_t features() const { return features_; }
  double smoothness() const { return smoothness_; }

  // Returns the loss at `w` and writes its gradient; both have as many numbers as there are
  // features.
  double Loss(std::span<const double> w, std::span<double> gradient) const;
  // Returns the matrix of second derivatives at `w`, row after row.
  std::vector<double> Curvature(std::span<const double> w) const;

 private:
  double LargestSquare() const;

  size_t features_;
  double ridge_, smoothness_;
  std::vector<std::vector<double>> x_;
  std::vector<double> y_;
};

// The mean of the workers' losses, which have the same number of features and ridge.
class LogisticProblem {
 public:
  explicit LogisticProblem(const std::vector<LogisticLoss::Options>& workers);

  const std::vector<LogisticLoss>& workers() const { return workers_; }
  // The largest rate at which gradient descent is sure to converge: 1 / the mean smoothness.
  double rate() const { return rate_; }
  double Loss(std::span<const double> w, std::span<double> gradient) const;
  // Returns the weights of the least loss.
  std::vector<double> Least() const;

 private:
  std::vector<LogisticLoss> workers_;
  double ridge_, rate_;
};

}  // namespace elastiquant::rates
