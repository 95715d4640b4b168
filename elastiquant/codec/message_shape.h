// How a message divides into tensors, for codecs that treat them as matrices.
#pragma once

#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

// The matrix that codecs take a tensor of these dimensions for: its first dimension by all
// others. A tensor of less than two dimensions, or without values, is one row. What is behind
// the second dimension is the kernel of a convolution.
TensorShape MatrixShape(std::span<const size_t> dimensions);

// A tensor in its place. `size` is rows * cols, but of NearSquare, whose last row may
// be cut short: there the missing values are taken as zeros.
struct PlacedTensor {
  TensorShape shape;
  size_t begin = 0;
  size_t size = 0;
};

class MessageShape {
 public:
  // Tensors without values are left out. Refuses what one frame cannot hold.
  static Result<MessageShape> Of(std::span<const TensorShape> tensors);

  size_t elements() const { return elements_; }
  std::span<const PlacedTensor> tensors() const { return tensors_; }

 private:
  std::vector<PlacedTensor> tensors_;
  size_t elements_ = 0;
};

// n > 0 values as one matrix as near to a square as can be with at most so many columns.
PlacedTensor NearSquare(size_t n, size_t most_columns);

// As factors a tensor is rank * (rows + cols) numbers. They stand for it only where that is
// less than its values are.
constexpr bool FactorsAreShorter(const PlacedTensor& tensor, size_t rank) {
  return rank * (tensor.shape.rows + tensor.shape.cols) < tensor.size;
}

}  // namespace elastiquant
