#include "elastiquant/rates/gossip_problem.h"

#include <cmath>
#include <limits>

#include "elastiquant/base/random.h"
#include "elastiquant/rates/logistic_problem.h"

namespace elastiquant::rates {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Length(std::span<const double> values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  return std::sqrt(squares);
}

// What each worker differs from the mean of all by, element by element.
std::vector<double> FromMean(std::span<const double> all, size_t workers) {
  const size_t stride = all.size() / workers;
  std::vector<double> differences(all.begin(), all.end());
  for (size_t e = 0; e < stride; ++e) {
    double mean = 0;
    for (size_t w = 0; w < workers; ++w) mean += all[w * stride + e];
    mean /= static_cast<double>(workers);
    for (size_t w = 0; w < workers; ++w) differences[w * stride + e] -= mean;
  }
  return differences;
}

bool IsBalanced(const std::vector<Mixing>& mixings) {
  for (const Mixing& mixing : mixings) {
    if (!CheckDoublyStochastic(mixing).ok()) return false;
  }
  return true;
}

class Quadratics final : public GossipProblem {
 public:
  Quadratics(size_t workers, uint64_t seed, double curvature)
      : workers_(workers), curvature_(curvature), minima_(workers * kElements) {
    for (size_t w = 0; w < workers; ++w) {
      const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, 0, w, 1));
      for (size_t e = 0; e < kElements; ++e) {
        double sum = 0;  // of uniform numbers: near enough to a Gaussian
        for (uint32_t k = 0; k < 8; ++k) {
          const uint32_t bits = RandomBits(keys, static_cast<uint32_t>(8 * e) + k);
          sum += static_cast<double>(UniformFloat(bits)) - .5;
        }
        minima_[w * kElements + e] = sum;
      }
    }
    minima_ = FromMean(minima_, workers);
  }

  size_t elements() const override { return kElements; }
  std::string unit() const override { return "minima's"; }

  void Move(size_t worker, std::span<const float> x, std::span<float> moved) const override {
    for (size_t e = 0; e < kElements; ++e) {
      const double way = minima_[worker * kElements + e] - static_cast<double>(x[e]);
      moved[e] = static_cast<float>(curvature_ * way);
    }
  }

  std::vector<double> Seen(std::span<const double> weights) const override {
    return FromMean(weights, workers_);
  }
  double Left(std::span<const double> weights) const override {
    return Length(Seen(weights)) / Length(minima_);
  }

  // All elements obey the same recursion, of one number a worker.
  Outcome Predict(theory::LinearGossip gossip, std::span<const double> /*end*/) const override {
    gossip.curvatures.assign(workers_, {curvature_});
    const auto among =
        IsBalanced(gossip.mixings) ? theory::Among::kDifferences : theory::Among::kAll;
    Outcome outcome{.rate = theory::RateOf(gossip, among), .left = kNan};
    if (outcome.rate >= 1) return outcome;
    // Of minima that are 1 of one worker and 0 of the others, a column for each.
    std::vector<double> constants(workers_ * workers_);
    for (size_t w = 0; w < workers_; ++w) constants[w * workers_ + w] = curvature_;
    constants = FromMean(constants, workers_);
    const std::vector<double> end =
        FromMean(theory::EndOf(gossip, constants, workers_), workers_);
    outcome.left = Length(end) / std::sqrt(static_cast<double>(workers_ - 1));
    return outcome;
  }

  Outcome Predict(theory::PairGossip gossip) const override {
    gossip.curvatures.assign(workers_, {curvature_});
    Outcome outcome{.rate = theory::RateOf(gossip), .left = kNan};
    if (outcome.rate >= 1) return outcome;
    // Minima that have nothing to do with each other, but for their mean.
    std::vector<double> constants(workers_ * workers_);
    for (size_t w = 0; w < workers_; ++w) constants[w * workers_ + w] = curvature_ * curvature_;
    constants = FromMean(constants, workers_);
    const std::vector<double> end = theory::EndProductsOf(gossip, constants);
    double squares = 0, all = 0;
    for (size_t i = 0; i < end.size(); ++i) {
      all += end[i];
      if (i % (workers_ + 1) == 0) squares += end[i];
    }
    const auto workers = static_cast<double>(workers_);
    outcome.left = std::sqrt((squares - all / workers) / (workers - 1));
    return outcome;
  }

 private:
  static constexpr size_t kElements = 512;

  size_t workers_;
  double curvature_;
  std::vector<double> minima_;  // one worker behind the other
};

class Regressions final : public GossipProblem {
 public:
  Regressions(size_t workers, uint64_t seed, double curvature)
      : problem_(LossesOf(workers, seed)),
        rate_(curvature / kMostSmooth),
        optimum_(problem_.Least()) {}

  size_t elements() const override { return kFeatures; }
  std::string unit() const override { return "optimum's"; }

  void Move(size_t worker, std::span<const float> x, std::span<float> moved) const override {
    std::vector<double> gradient(kFeatures);
    problem_.workers()[worker].Loss(std::vector<double>(x.begin(), x.end()), gradient);
    for (size_t e = 0; e < kFeatures; ++e) {
      moved[e] = static_cast<float>(-rate_ * gradient[e]);
    }
  }

  std::vector<double> Seen(std::span<const double> weights) const override {
    return {weights.begin(), weights.end()};
  }
  double Left(std::span<const double> weights) const override {
    std::vector<double> off(weights.begin(), weights.end());
    for (size_t i = 0; i < off.size(); ++i) off[i] -= optimum_[i % kFeatures];
    return PartOfOptimum(off);
  }

  Outcome Predict(theory::LinearGossip gossip, std::span<const double> end) const override {
    std::vector<double> at(end.begin(), end.end());
    if (at.empty()) at = Everywhere(optimum_);
    gossip.elements = kFeatures;
    gossip.curvatures = CurvaturesAt(at);
    Outcome outcome{.rate = theory::RateOf(gossip, theory::Among::kAll), .left = kNan};
    if (outcome.rate >= 1) return outcome;
    // What is left is told without having been seen: to first order around the optimum.
    gossip.curvatures = CurvaturesAt(Everywhere(optimum_));
    outcome.left = PartOfOptimum(theory::EndOf(gossip, ConstantsAtOptimum(), 1));
    return outcome;
  }

  Outcome Predict(theory::PairGossip gossip) const override {
    gossip.elements = kFeatures;
    gossip.curvatures = CurvaturesAt(Everywhere(optimum_));
    Outcome outcome{.rate = theory::RateOf(gossip), .left = kNan};
    if (outcome.rate >= 1) return outcome;
    const std::vector<double> constants = ConstantsAtOptimum();
    std::vector<double> products;
    products.reserve(constants.size() * constants.size());
    for (const double a : constants) {
      for (const double b : constants) products.push_back(a * b);
    }
    const std::vector<double> end = theory::EndProductsOf(gossip, products);
    std::vector<double> roots;
    roots.reserve(constants.size());
    for (size_t i = 0; i < constants.size(); ++i) {
      roots.push_back(std::sqrt(end[i * (constants.size() + 1)]));
    }
    outcome.left = PartOfOptimum(roots);
    return outcome;
  }

 private:
  static constexpr size_t kFeatures = 4;
  static constexpr double kMostSmooth = 2, kRidge = .5;

  static LogisticProblem LossesOf(size_t workers, uint64_t seed) {
    std::vector<LogisticLoss::Options> losses;
    for (size_t w = 0; w < workers; ++w) {
      const double part =
          workers > 1 ? static_cast<double>(w) / static_cast<double>(workers - 1) : 0;
      losses.push_back({.features = kFeatures,
                        .ridge = kRidge,
                        .smoothness = 1 + part * (kMostSmooth - 1),
                        .telling_feature = 1 + w % (kFeatures - 1),
                        .seed = seed,
                        .worker = w});
    }
    return LogisticProblem(losses);
  }

  std::vector<double> Everywhere(const std::vector<double>& weights) const {
    std::vector<double> all;
    for (size_t w = 0; w < problem_.workers().size(); ++w) {
      all.insert(all.end(), weights.begin(), weights.end());
    }
    return all;
  }

  std::vector<std::vector<double>> CurvaturesAt(std::span<const double> weights) const {
    std::vector<std::vector<double>> all;
    for (size_t w = 0; w < problem_.workers().size(); ++w) {
      const auto own = weights.subspan(w * kFeatures, kFeatures);
      std::vector<double>& curvature = all.emplace_back(problem_.workers()[w].Curvature(own));
      for (double& c : curvature) c *= rate_;
    }
    return all;
  }

  // How far a step moves each worker that is at the optimum of all.
  std::vector<double> ConstantsAtOptimum() const {
    std::vector<double> gradient(kFeatures), constants;
    for (const LogisticLoss& loss : problem_.workers()) {
      loss.Loss(optimum_, gradient);
      for (const double g : gradient) constants.push_back(-rate_ * g);
    }
    return constants;
  }

  double PartOfOptimum(std::span<const double> off) const {
    const auto workers = static_cast<double>(problem_.workers().size());
    return Length(off) / std::sqrt(workers) / Length(optimum_);
  }

  LogisticProblem problem_;
  double rate_;
  std::vector<double> optimum_;
};

}  // namespace

Result<std::unique_ptr<GossipProblem>> MakeGossipProblem(const std::string& name,
                                                         size_t workers, uint64_t seed,
                                                         double curvature) {
  using Made = std::unique_ptr<GossipProblem>;
  if (name == "quadratics") return Made(std::make_unique<Quadratics>(workers, seed, curvature));
  if (name == "logistic") return Made(std::make_unique<Regressions>(workers, seed, curvature));
  return InvalidArgument("problem '" + name +
                         "' is not known; valid are: quadratics, logistic");
}

}  // namespace elastiquant::rates
