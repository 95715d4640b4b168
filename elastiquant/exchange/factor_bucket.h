// One bucket whose matrices are averaged by their factors (FactorPlan). The three steps are
// called in order, by any threads. Between the first two p() must become its mean, between the
// last two q(), and dense() at any time before the last.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/low_rank/matrix_factors.h"
#include "elastiquant/stream/codec_stream.h"

namespace elastiquant {

// LowRankReducer has one for each bucket that goes by kFactors.
class FactorBucket {
 public:
  // `codec` made the plan. The gradient must outlive this.
  FactorBucket(std::shared_ptr<const Codec> codec, FactorPlan plan, std::span<float> gradient);

  const FactorPlan& plan() const { return plan_; }
  CodecStream& stream() { return stream_; }

  std::span<float> p() { return p_; }
  std::span<float> q() { return q_; }
  std::span<float> dense() { return dense_; }  // values that have no factors

  // Makes the gradient M, that is, adds to it what is remembered, if there is error feedback,
  // and sets P = M Q. All workers must give the same key. Values that are not finite show in
  // p() or dense().
  void Project(StreamKey key, Workspace& work);
  // Makes the mean P orthonormal, and sets Q = M^T P. Infinity stands in q() if fp32 cannot
  // hold it.
  void ProjectBack(Workspace& work);
  // Makes the gradient P Q^T, with the mean Q, or the mean of its dense values. Hands over what
  // is to be remembered: Q and, with error feedback, M less the new gradient.
  void Reconstruct(Workspace& work);

  // The squared norm of this worker's M, and of what the columns of P leave of it.
  struct Error {
    double squared_error = 0;
    double squared_norm = 0;
  };
  // Measures this. Valid after ProjectBack, until q() becomes its mean.
  Error Measure() const;

 private:
  // Where a tensor's factors lie in p_ and q_.
  struct Factors {
    const FactorPlan::Tensor* tensor;
    std::span<float> p, q;
  };
  MatrixView Matrix(const Factors& factors) const;
  FactorView P(const Factors& f) const {
    return {f.p.data(), f.tensor->shape.rows, plan_.rank};
  }
  FactorView Q(const Factors& f) const {
    return {f.q.data(), f.tensor->shape.cols, plan_.rank};
  }
  StateIn before() { return part_.before(); }
  StateOut after() { return part_.after(); }
  // Calls fn(tensor, its part of dense_).
  template <typename Fn>
  void ForEachDense(const Fn& fn);

  const FactorPlan plan_;
  const std::span<float> gradient_;
  CodecStream stream_;
  CodecStream::Part part_;  // of this step
  std::vector<float> p_, q_, dense_;
  std::vector<double> exact_;  // a factor before it is rounded
  std::vector<Factors> factors_;
};

}  // namespace elastiquant
