#include "elastiquant/codec/low_rank/low_rank_codec.h"

#include <algorithm>
#include <cmath>

#include "elastiquant/base/number.h"

namespace elastiquant {

size_t LowRankCodec::MaxFrameBytes(size_t n) const {
  PlacedTensor single;
  const auto tensors = TensorsOf(n, &single);
  if (!tensors.ok()) return LowRankNumbersOffset(0);  // nothing will be encoded
  size_t bytes = LowRankNumbersOffset(tensors->size());
  for (const PlacedTensor& tensor : *tensors) bytes += MaxBytes(tensor);
  return bytes;
}

Result<std::shared_ptr<const Codec>> LowRankCodec::WithShapes(
    std::span<const TensorShape> shapes) const {
  EQ_ASSIGN_OR_RETURN(MessageShape shape, MessageShape::Of(shapes));
  return Reshaped(std::make_shared<const MessageShape>(std::move(shape)));
}

Result<std::span<const PlacedTensor>> LowRankCodec::TensorsOf(size_t n,
                                                              PlacedTensor* single) const {
  if (shape_ && shape_->elements() != n) {
    return InvalidArgument("codec '" + spec() + "' was given the shapes of tensors with " +
                           std::to_string(shape_->elements()) + " values, but a message of " +
                           std::to_string(n));
  }
  if (shape_) return shape_->tensors();
  if (n == 0) return std::span<const PlacedTensor>();
  *single = NearSquare(n, MostColumns());
  return std::span<const PlacedTensor>(single, 1);
}

Result<size_t> ParseRank(const SpecPart& part, std::string_view codec,
                         std::string_view fallback) {
  const std::string_view text = SpecValue(part, "rank", fallback);
  size_t rank = 0;
  if (ParseNumber(text, &rank) && rank >= 1 && rank <= 1024) return rank;
  return InvalidArgument("codec '" + std::string(codec) + "': rank=" + std::string(text) +
                         " is not valid; use a whole number from 1 to 1024");
}

Status NonFiniteIn(std::span<const float> values, size_t begin) {
  const auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return Internal("no value is NaN or infinite after all");
  return NonFinite("the value at coordinate " +
                   std::to_string(begin + static_cast<size_t>(bad - values.begin())) + " is " +
                   std::to_string(*bad));
}

}  // namespace elastiquant
