#include "elastiquant/theory/tiny_problems_test_util.h"

#include <algorithm>

namespace elastiquant::theory {
namespace {

class Quadratic : public FiniteSum {
 public:
  Quadratic() {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < kSamples; ++i) {
      Point centre(kDimension);
      for (double& x : centre) x = 1 + 0.5 * normal(random);
      centres_.push_back(centre);
    }
  }
  size_t dimension() const override { return kDimension; }
  size_t samples() const override { return kSamples; }
  double Loss(const Point& x, size_t i) const override {
    double sum = 0;
    for (size_t j = 0; j < kDimension; ++j) {
      const double e = x[j] - centres_[i][j];
      sum += Curvature(j) * e * e / 2;
    }
    return sum;
  }
  Point Gradient(const Point& x, size_t i) const override {
    Point g(kDimension);
    for (size_t j = 0; j < kDimension; ++j) g[j] = Curvature(j) * (x[j] - centres_[i][j]);
    return g;
  }
  Point Start() const override { return Point(kDimension, 3); }

 private:
  static constexpr size_t kDimension = 24, kSamples = 32;
  static double Curvature(size_t j) { return 0.05 + 0.95 * static_cast<double>(j) / 23; }
  std::vector<Point> centres_;
};

class Logistic : public FiniteSum {
 public:
  Logistic() {
    std::mt19937 random(2);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < kSamples; ++i) {
      const double side = i % 2 == 0 ? 1 : -1;
      Point a(kDimension);
      for (double& x : a) x = side * (0.3 * side + normal(random));  // times the label
      inputs_.push_back(a);
    }
  }
  size_t dimension() const override { return kDimension; }
  size_t samples() const override { return kSamples; }
  double Loss(const Point& x, size_t i) const override {
    return std::log1p(std::exp(-Inner(x, i)));
  }
  Point Gradient(const Point& x, size_t i) const override {
    const double factor = -1 / (1 + std::exp(Inner(x, i)));
    Point g(kDimension);
    for (size_t j = 0; j < kDimension; ++j) g[j] = factor * inputs_[i][j];
    return g;
  }
  Point Start() const override { return Point(kDimension, -1); }

 private:
  static constexpr size_t kDimension = 12, kSamples = 60;
  double Inner(const Point& x, size_t i) const {
    double sum = 0;
    for (size_t j = 0; j < kDimension; ++j) sum += x[j] * inputs_[i][j];
    return sum;
  }
  std::vector<Point> inputs_;
};

// Weights: of each unit 3 and a bias, then the outputs' 5.
class Network : public FiniteSum {
 public:
  Network() {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < kSamples; ++i) {
      Point a(kInputs);
      for (double& x : a) x = normal(random);
      targets_.push_back(std::sin(a[0]) * a[1] + 0.3 * a[2]);
      inputs_.push_back(a);
    }
  }
  size_t dimension() const override { return kUnits * (kInputs + 2); }
  size_t samples() const override { return kSamples; }
  double Loss(const Point& x, size_t i) const override {
    const double e = Forward(x, i, nullptr) - targets_[i];
    return e * e / 2;
  }
  Point Gradient(const Point& x, size_t i) const override {
    Point hidden(kUnits), g(dimension());
    const double e = Forward(x, i, &hidden) - targets_[i];
    for (size_t u = 0; u < kUnits; ++u) {
      const double back = e * x[kOut + u] * (1 - hidden[u] * hidden[u]);
      for (size_t j = 0; j < kInputs; ++j) g[u * (kInputs + 1) + j] = back * inputs_[i][j];
      g[u * (kInputs + 1) + kInputs] = back;
      g[kOut + u] = e * hidden[u];
    }
    return g;
  }
  Point Start() const override {
    std::mt19937 random(4);
    std::normal_distribution<double> normal;
    Point x(dimension());
    for (double& w : x) w = 0.7 * normal(random);
    return x;
  }

 private:
  static constexpr size_t kInputs = 3, kUnits = 5, kSamples = 40;
  static constexpr size_t kOut = kUnits * (kInputs + 1);
  double Forward(const Point& x, size_t i, Point* hidden) const {
    double out = 0;
    for (size_t u = 0; u < kUnits; ++u) {
      double sum = x[u * (kInputs + 1) + kInputs];
      for (size_t j = 0; j < kInputs; ++j) sum += x[u * (kInputs + 1) + j] * inputs_[i][j];
      if (hidden != nullptr) (*hidden)[u] = std::tanh(sum);
      out += x[kOut + u] * std::tanh(sum);
    }
    return out;
  }
  std::vector<Point> inputs_;
  std::vector<double> targets_;
};

Point ThroughCodec(const Codec& codec, const Point& v, StreamKey key) {
  const std::vector<float> values(v.begin(), v.end());
  const std::vector<float> decoded = Decode(Encode(codec, values, key), values.size());
  return {decoded.begin(), decoded.end()};
}

// What all workers decode for the mean of their gradients.
Point DecodedMean(const FiniteSum& f, const Training& training, const Point& x, uint64_t run,
                  uint64_t step, std::mt19937& random) {
  Point mean(f.dimension(), 0);
  for (int worker = 0; worker < training.workers; ++worker) {
    const Point g = f.Gradient(x, random() % f.samples());
    const auto key = DeriveKey(run, step, static_cast<uint64_t>(worker), 0);
    AddScaled(&mean, 1.0 / training.workers, ThroughCodec(*training.codec, g, key));
  }
  if (!training.two_phase) return mean;
  return ThroughCodec(*training.codec, mean, DeriveKey(run, step, 0, 1));
}

void Measure(const FiniteSum& f, const Point& x, const Point& mean, Trace* trace) {
  const double n = static_cast<double>(f.samples());
  double square = 0;
  for (size_t i = 0; i < f.samples(); ++i) square += Square(f.Gradient(x, i)) / n;
  trace->second_moment = std::max(trace->second_moment, square);
  trace->noise = std::max(trace->noise, square - Square(mean));
  trace->slope = std::max(trace->slope, std::sqrt(Square(mean)));
}

}  // namespace

std::unique_ptr<FiniteSum> MakeQuadratic() { return std::make_unique<Quadratic>(); }
std::unique_ptr<FiniteSum> MakeLogistic() { return std::make_unique<Logistic>(); }
std::unique_ptr<FiniteSum> MakeNetwork() { return std::make_unique<Network>(); }

double MeasureSmoothness(const FiniteSum& f, const Point& centre, double radius) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  double largest = 0;
  for (int pair = 0; pair < 400; ++pair) {
    Point x = centre, y;
    for (double& w : x) w += radius * normal(random) / std::sqrt(x.size());
    y = x;
    const double apart = radius * std::pow(10.0, -(pair % 4));
    for (double& w : y) w += apart * normal(random) / std::sqrt(y.size());
    // The steepest direction, not a random one: along the difference of gradients once more.
    for (int i = 0; i < 3; ++i) {
      const Point change = Difference(f.Mean(y), f.Mean(x));
      const double distance = std::sqrt(Square(Difference(y, x)));
      const double size = std::sqrt(Square(change));
      largest = std::max(largest, size / distance);
      if (size == 0) break;
      y = x;
      AddScaled(&y, distance / size, change);
    }
  }
  return largest;
}

Point Minimise(const FiniteSum& f, double smoothness, int steps) {
  Point x = f.Start();
  for (int i = 0; i < steps; ++i) AddScaled(&x, -1 / smoothness, f.Mean(x));
  return x;
}

Trace Train(const FiniteSum& f, const Training& training) {
  Trace trace;
  const size_t d = f.dimension();
  std::vector<double> squares(static_cast<size_t>(training.steps) + 1, 0);
  for (int run = 0; run < training.runs; ++run) {
    std::mt19937 random(100 + static_cast<unsigned>(run));
    Point x = f.Start(), z = x, sum(d, 0), before = x, before_mean;
    for (int t = 0; t <= training.steps; ++t) {
      const Point mean = f.Mean(x);
      Measure(f, x, mean, &trace);
      if (t > 0) {
        const double apart = std::sqrt(Square(Difference(x, before)));
        const double change = std::sqrt(Square(Difference(mean, before_mean)));
        if (apart > 0) trace.smoothness = std::max(trace.smoothness, change / apart);
      }
      squares[static_cast<size_t>(t)] += Square(mean) / training.runs;
      if (t > 0 || training.with_start) AddScaled(&sum, 1, x);
      if (t == training.steps) break;
      before = x;
      before_mean = mean;
      const Point g = DecodedMean(f, training, x, static_cast<uint64_t>(run),
                                  static_cast<uint64_t>(t), random);
      Point y = x, z_next = x;
      AddScaled(&y, -training.step, g);
      AddScaled(&z_next, -training.momentum.nesterov * training.step, g);
      x = y;
      AddScaled(&x, training.momentum.beta, Difference(z_next, z));
      z = z_next;
    }
    const double count = training.steps + (training.with_start ? 1 : 0);
    for (double& w : sum) w /= count;
    trace.mean_value += f.Value(sum) / training.runs;
  }
  trace.least_square = *std::min_element(squares.begin(), squares.end());
  for (int t = 0; t < training.steps; ++t) {
    trace.mean_square += squares[static_cast<size_t>(t)] / training.steps;
  }
  return trace;
}

}  // namespace elastiquant::theory
