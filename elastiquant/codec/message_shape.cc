#include "elastiquant/codec/message_shape.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

size_t Product(std::span<const size_t> factors) {
  return std::accumulate(factors.begin(), factors.end(), size_t{1}, std::multiplies<>());
}

}  // namespace

TensorShape MatrixShape(std::span<const size_t> dimensions) {
  const size_t elements = Product(dimensions);
  if (dimensions.size() < 2 || elements == 0) return {1, elements, 1};
  return {dimensions[0], Product(dimensions.subspan(1)), Product(dimensions.subspan(2))};
}

Result<MessageShape> MessageShape::Of(std::span<const TensorShape> tensors) {
  MessageShape message;
  for (const TensorShape& shape : tensors) {
    if (shape.rows == 0 || shape.cols == 0) continue;
    if (shape.rows > kMaxFrameElements / shape.cols ||
        shape.rows * shape.cols > kMaxFrameElements - message.elements_) {
      return InvalidArgument("a frame holds at most 2^32 - 1 values, and a tensor of " +
                             std::to_string(shape.rows) + " x " + std::to_string(shape.cols) +
                             " exceeds that: cut the message up");
    }
    const size_t size = shape.rows * shape.cols;
    message.tensors_.push_back({shape, message.elements_, size});
    message.elements_ += size;
  }
  return message;
}

PlacedTensor NearSquare(size_t n, size_t most_columns) {
  // Of any n < 2^52 the root is exact to within one.
  auto cols = static_cast<size_t>(std::sqrt(static_cast<double>(n)));
  while (cols * cols < n) ++cols;
  cols = std::min(cols, most_columns);
  return {{(n + cols - 1) / cols, cols}, 0, n};
}

}  // namespace elastiquant
