// The metric in which gradients are compressed. An adaptive optimiser (Adam and its kin) moves
// a weight by g / sqrt(v), where v is its running mean of squared gradients. Noise of variance
// sigma^2 in g therefore counts as sigma^2 / v. A codec spreads its noise evenly over the
// values that it is given, which is right for SGD, and drowns the weights with small gradients
// under Adam. So what is given to it is g / sqrt(v): all workers have the same v, and can
// convert back. An unbiased codec stays unbiased.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/bucket_plan.h"

namespace elastiquant {

// Where each parameter's second moments are: its v, in the order in which the values of the
// gradient lie in the bucket. A span is empty where there are none (yet).
using SecondMoments = std::vector<std::span<const float>>;

// Converts buckets of gradients to the metric and back. LayerReduction has one.
//
// The unit of a value is sqrt(v + kFloor * mean) to within 3.6 % (kernels/whiten.h), with the
// mean of v over its parameter, which is taken over a sample of a sixteenth of large ones. A
// parameter without second moments, or whose mean is zero or not finite, has one unit for all
// its values: the root of the mean of v over all parameters that have them, so that its values
// are of the size of the others'. If there are none at all, the metric is plain, and nothing is
// converted.
class Metric {
 public:
  static constexpr double kFloor = 1e-6;
  // So many first steps should go uncompressed. Before there are second moments nothing is
  // known of the metric, and those of a step or two say little of it: where a gradient happened
  // to be small, the next one is huge in their units. What noise the second moments take up
  // then fades more slowly than the optimiser forgets. (docs/results.md has what that costs.)
  static constexpr int64_t kFirstSteps = 5;

  // `lossy` says of each bucket whether its codec loses anything: the others need no metric,
  // and would lose by the conversion. `plan` and `shapes` must outlive it.
  Metric(const BucketPlan& plan, std::span<const ParameterShape> shapes,
         std::vector<bool> lossy);

  // Sets the second moments, by parameter, from the next step on. They are read in each step
  // until they are set again, and must not change while a step is under way; their values must
  // be the same on all workers. No moments: the metric is plain. Fails with kInvalidArgument
  // unless there is a span for each parameter, which is empty or has its elements.
  Status Set(SecondMoments moments);

  // Must be called when a step begins: takes the means.
  void BeginStep();
  bool is_plain() const { return is_plain_; }

  // Enter converts the values of a bucket to the metric, and Leave converts values in it, such
  // as their mean, back. Threads may call these at once for different buckets. Enter returns
  // the bucket's Name.
  uint16_t Enter(size_t bucket, std::span<float> values);
  void Leave(size_t bucket, std::span<float> values) const;

  // Do the same for the values of one parameter while they are copied, which costs little more
  // than the copy. `to` has room for as many values as `from`, and may be where those are.
  void CopyIn(size_t parameter, std::span<const float> from, float* to);
  void CopyOut(size_t parameter, std::span<const float> from, float* to) const;

  // Returns a name of the metric of a bucket, all parameters of which have entered in this
  // step. It is derived from v, and differs if any v of the bucket does, save by a chance of
  // 1 : 65535. It is 0 if nothing is converted, as in a plain metric and for buckets that are
  // not lossy.
  uint16_t Name(size_t bucket) const;

 private:
  // The unit of a parameter's values is 1, or sqrt(floor), or sqrt(v + floor).
  struct Unit {
    enum class Kind : uint8_t { kOne, kByParameter, kByValue } kind = Kind::kOne;
    float floor = 1;
    uint32_t bits_of_moments = 0;  // their sum, when values have entered
  };
  using Kind = Unit::Kind;

  // Calls fn(parameter, its values) for each parameter of a bucket.
  template <typename Fn>
  void ForEachParameter(size_t bucket, std::span<float> values, const Fn& fn) const;

  const BucketPlan& plan_;
  const std::span<const ParameterShape> shapes_;
  const std::vector<bool> lossy_;  // by bucket
  SecondMoments moments_;
  bool is_plain_ = true;
  std::vector<Unit> units_;  // by parameter, of this step
};

}  // namespace elastiquant
