// What it costs to train to a target: iterations, which grow with a codec's variance, times
// bits, which shrink with it ("variance bound x code-length bound = cost bound").
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
  size_t parameters = 1000000;  // of the model
  double compute_seconds = 0;   // a step without communication, of which nothing overlaps
};

// What a worker sends in a step, K workers, P parameters: two-phase, 2 (K-1) frames of P/K
// values; all-gather, K-1 frames of P values; integer sums (K <= 127), K-1 frames of P/K
// values, as many of their sums at their longest, and P/bucket scales as often. (Factors and
// sparse messages are counted as an all-gather.) Frames only: below them Ethernet, IP and TCP
// add some 7 %.
double StepBits(const Codec& codec, const Cluster& cluster);
// compute + bits / rate + one delay for each phase, of which integer sums have three. Frames of
// the codec run beside each other, and encoding costs nothing.
double StepSeconds(double step_bits, Exchange exchange, const Cluster& cluster);

struct Cost {
  std::string spec;
  double variance = 0;  // omega, PlannedVariance of a chunk; with a shared scale all workers'
  double bits_per_coordinate = 0;  // of one frame
  double steps = 0;                // ConvexSteps with NoiseOfMean
  double bits = 0;                 // that a worker sends, all steps together
  double seconds = 0;
};

// To E f - f* <= target for a convex f (ConvexBound). A prediction of bounds, not of a run: it
// ranks codecs for the least favourable gradients. Fails with kInvalidArgument if the spec is
// wrong, the codec is not unbiased or has no known variance, or a figure is out of range.
Result<Cost> CostOf(const std::string& spec, const SgdProblem& problem, const Cluster& cluster,
                    double target);

// The elastic codec's settings, by seconds: 2 to 8 bits; exponential levels with the rule's p
// and with ExactOptimalRatio, and uniform ones; L2 and L-infinity norms; buckets of 64 to
// 65536; fixed width and, under L2, Elias. Some seconds of work; kInvalidArgument as CostOf.
Result<std::vector<Cost>> RankSettings(const SgdProblem& problem, const Cluster& cluster,
                                       double target);

}  // namespace elastiquant::theory
