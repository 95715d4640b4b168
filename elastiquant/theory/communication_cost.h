// Predicts what it costs to train to a target: iterations, which grow with a codec's variance,
// times bits, which shrink with it ("variance bound x code-length bound = cost bound").
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "elastiquant/base/link_spec.h"
#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/theory/sgd_rate.h"

namespace elastiquant::theory {

// Replicas that average gradients, each behind an access link of its own.
struct Cluster {
  LinkSpec link;
  int workers = 4;              // at least 2
  size_t parameters = 1000000;  // parameters of the model
  double compute_seconds = 0;   // of a step; communication does not overlap it
};

// Returns the bits that a worker sends in a step, with K workers and P parameters. In two-phase
// that is 2 (K-1) frames of P/K values, and in an all-gather K-1 frames of P values. For
// integer sums (K <= 127) it is K-1 frames of P/K values, as many messages of their sums at
// their longest, and (K-1) times the P/bucket scales. (Factors and sparse messages are counted
// as an all-gather.) Only frames are counted: Ethernet, IP and TCP add some 7 %.
double StepBits(const Codec& codec, const Cluster& cluster);
// Returns compute + bits / rate + one delay for each phase, of which integer sums have three.
// It assumes that the frames of the codec run beside each other, and that encoding costs
// nothing.
double StepSeconds(double step_bits, Exchange exchange, const Cluster& cluster);

// What training to a target costs under one codec.
struct Cost {
  std::string spec;
  double variance = 0;  // omega: PlannedVariance of a chunk; all workers' under a shared scale
  double bits_per_coordinate = 0;  // bits of one frame
  double steps = 0;                // ConvexSteps with NoiseOfMean
  double bits = 0;                 // bits that a worker sends in all steps together
  double seconds = 0;
};

// Returns the cost of training to E f - f* <= target for a convex f (ConvexBound). It is a
// prediction by bounds, not of a run: it ranks codecs for the least favourable gradients. Fails
// with kInvalidArgument if the spec is wrong, if the codec is not unbiased or has no known
// variance, or if a figure is out of range.
Result<Cost> CostOf(const std::string& spec, const SgdProblem& problem, const Cluster& cluster,
                    double target);

// Returns the costs of the elastic codec's settings, the fastest first: 2 to 8 bits; uniform
// levels, and exponential ones with the rule's p and (from 3 bits on) with ExactOptimalRatio;
// L2 and L-infinity norms; buckets of 64 to 65536; fixed width and, under L2, Elias. It takes
// some seconds. Fails with kInvalidArgument as CostOf does.
Result<std::vector<Cost>> RankSettings(const SgdProblem& problem, const Cluster& cluster,
                                       double target);

}  // namespace elastiquant::theory
