// How a message divides into tensors, for codecs that treat tensors as matrices.
#pragma once

#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

// Returns the matrix that codecs take a tensor of these dimensions for: its rows are the first
// dimension, and its columns all others. A tensor of fewer than two dimensions, or without
// values, is one row. The dimensions behind the second are the kernel of a convolution.
TensorShape MatrixShape(std::span<const size_t> dimensions);

// A tensor and its place in a message. `size` is rows * cols, except in what NearSquare
// returns, where the last row may be cut short: the values that it lacks are taken as zeros.
struct PlacedTensor {
  TensorShape shape;
  size_t begin = 0;
  size_t size = 0;
};

class MessageShape {
 public:
  // Makes the shape of a message of these tensors. Tensors without values are left out. Fails
  // with kInvalidArgument if one frame cannot hold them.
  static Result<MessageShape> Of(std::span<const TensorShape> tensors);

  size_t elements() const { return elements_; }
  std::span<const PlacedTensor> tensors() const { return tensors_; }

 private:
  std::vector<PlacedTensor> tensors_;
  size_t elements_ = 0;
};

// Returns n > 0 values as one matrix, which is as near to a square as it can be with at most so
// many columns.
PlacedTensor NearSquare(size_t n, size_t most_columns);

// Whether a tensor's factors, rank * (rows + cols) numbers, are fewer than its values. Only
// then do they stand for it.
constexpr bool FactorsAreShorter(const PlacedTensor& tensor, size_t rank) {
  return rank * (tensor.shape.rows + tensor.shape.cols) < tensor.size;
}

}  // namespace elastiquant
