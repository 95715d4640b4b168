// One bucket whose matrices are averaged by their factors (FactorPlan). The three steps are
// called in order, by any threads; between them p(), dense() and then q() must become means.
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

class FactorBucket {
 public:
  // `codec` made the plan. The gradient must outlive this.
  FactorBucket(std::shared_ptr<const Codec> codec, FactorPlan plan, std::span<float> gradient);

  const FactorPlan& plan() const { return plan_; }
  CodecStream& stream() { return stream_; }

  std::span<float> p() { return p_; }
  std::span<float> q() { return q_; }
  std::span<float> dense() { return dense_; }  // values that have no factors

  // The gradient becomes M, which is it and what is remembered; P = M Q. All workers must give
  // the same key. Values that are not finite show in p() or dense().
  void Project(StreamKey key, Workspace& work);
  // From the mean P: Q = M^T P. Infinity stands in q() if fp32 cannot hold it.
  void ProjectBack(Workspace& work);
  // From the mean Q: the gradient becomes P Q^T, or the mean of its dense values; what it was
  // more than that is to be remembered, and Q.
  void Reconstruct(Workspace& work);

  // After ProjectBack: of this worker's M, what the columns of P leave, and all.
  struct Error {
    double squared_error = 0;
    double squared_norm = 0;
  };
  Error Measure() const;

 private:
  // A tensor's places in p_ and q_.
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
  CodecStream::Part part_;  // in this step
  std::vector<float> p_, q_, dense_;
  std::vector<double> exact_;  // a factor before it is rounded
  std::vector<Factors> factors_;
};

}  // namespace elastiquant
