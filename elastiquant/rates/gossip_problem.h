// The problems on which rates of decentralised training are measured, with what theory says of
// them (theory/linear_gossip.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/theory/linear_gossip.h"
#include "elastiquant/theory/pair_gossip.h"

namespace elastiquant::rates {

class GossipProblem {
 public:
  virtual ~GossipProblem() = default;

  virtual size_t elements() const = 0;  // of a worker's weights
  // Writes how far a step of gradient descent moves a worker at `x`.
  virtual void Move(size_t worker, std::span<const float> x, std::span<float> moved) const = 0;
  // Returns, of all workers' weights, one worker behind the other, that which a rate is of.
  virtual std::vector<double> Seen(std::span<const double> weights) const = 0;
  // Returns how far from the optimum the workers are: the root of the mean square, as a part of
  // what `unit()` says.
  virtual double Left(std::span<const double> weights) const = 0;
  virtual std::string unit() const = 0;

  // What theory says of an algorithm whose recursion, mixings and step are given, and which has
  // been seen to end at `end`, or nowhere if that is empty.
  struct Outcome {
    double rate = 0;  // what distances are multiplied by in a round
    double left = 0;  // as Left has it; NaN if the rate is not below 1
  };
  virtual Outcome Predict(theory::LinearGossip gossip, std::span<const double> end) const = 0;
  // The same of AD-PSGD, as roots of mean squares, to first order around the optimum. The rate
  // is of all weights.
  virtual Outcome Predict(theory::PairGossip gossip) const = 0;
};

// Makes the problem of that name; kInvalidArgument lists the names.
//
// "quadratics": f_i(x) = h/2 |x - b_i|^2 with a learning rate of curvature / h, and minima b_i
// that have nothing to do with each other, but for their mean of 0. Rates are of what workers
// differ by, and what is left is a part of the minima's differences.
//
// "logistic": logistic regression of four features, on 50 samples a worker. Workers tell
// classes apart by different features, their smoothness L_i is from 1 to 2, and the ridge is
// 1/2; the learning rate is curvature / 2. Rates are of all weights, and what is left is a part
// of the optimum's length. Predict takes the curvatures at `end`, so that its rate is exact if
// the workers do end there.
Result<std::unique_ptr<GossipProblem>> MakeGossipProblem(const std::string& name,
                                                         size_t workers, uint64_t seed,
                                                         double curvature);

}  // namespace elastiquant::rates
