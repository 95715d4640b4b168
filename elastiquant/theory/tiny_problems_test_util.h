// Problems small enough that every constant of a theorem can be measured, and SGD on them with
// the real codec between workers and mean.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/theory/momentum_rate.h"

namespace elastiquant::theory {

using Point = std::vector<double>;

inline double Square(const Point& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return sum;
}
inline Point Difference(const Point& a, const Point& b) {
  Point c = a;
  for (size_t i = 0; i < c.size(); ++i) c[i] -= b[i];
  return c;
}
inline void AddScaled(Point* sum, double factor, const Point& v) {
  for (size_t i = 0; i < v.size(); ++i) (*sum)[i] += factor * v[i];
}

// f = the mean of f_0 ... f_{samples-1}; a stochastic gradient is that of one sample.
class FiniteSum {
 public:
  virtual ~FiniteSum() = default;
  virtual size_t dimension() const = 0;
  virtual size_t samples() const = 0;
  virtual double Loss(const Point& x, size_t sample) const = 0;
  virtual Point Gradient(const Point& x, size_t sample) const = 0;
  virtual Point Start() const = 0;

  double Value(const Point& x) const {
    double sum = 0;
    for (size_t i = 0; i < samples(); ++i) sum += Loss(x, i);
    return sum / static_cast<double>(samples());
  }
  Point Mean(const Point& x) const {
    Point mean(dimension(), 0);
    for (size_t i = 0; i < samples(); ++i) {
      AddScaled(&mean, 1 / static_cast<double>(samples()), Gradient(x, i));
    }
    return mean;
  }
};

std::unique_ptr<FiniteSum> MakeQuadratic();  // f_i = (x - a_i)^T diag (x - a_i) / 2
std::unique_ptr<FiniteSum> MakeLogistic();   // two overlapping clouds
std::unique_ptr<FiniteSum> MakeNetwork();    // 3 inputs, 5 tanh units, squared error

// The largest |grad f(x) - grad f(y)| / |x - y| that random pairs within `radius` of `centre`,
// near and far ones, show.
double MeasureSmoothness(const FiniteSum& f, const Point& centre, double radius);
// Gradient descent until nothing changes any more.
Point Minimise(const FiniteSum& f, double smoothness, int steps);

// Largest values over all iterates of all runs, and means over runs.
struct Trace {
  double noise = 0;          // E|g - grad f|^2 of one worker
  double second_moment = 0;  // E|g|^2
  double slope = 0;          // |grad f|
  double smoothness = 0;     // between one iterate and the next
  double mean_value = 0;     // f of the mean iterate, mean over runs
  double mean_square = 0;    // |grad f|^2, mean over iterates and runs
  double least_square = 0;   // least over iterates of its mean over runs
};

struct Training {
  std::shared_ptr<const Codec> codec;
  int workers = 4;
  bool two_phase = false;
  Momentum momentum{0, 0};
  double step = 0.1;
  int steps = 200;
  int runs = 8;
  // Whether the mean iterate is of x_0 ... x_T or of x_1 ... x_T.
  bool with_start = false;
};
Trace Train(const FiniteSum& f, const Training& training);

}  // namespace elastiquant::theory
