// What the low-rank codecs share: how a message becomes matrices, and the frame around them.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/low_rank/low_rank_format.h"
#include "elastiquant/codec/message_shape.h"
#include "elastiquant/codec/spec.h"

namespace elastiquant {

// Without shapes a message is one matrix, as near to a square as MostColumns() allows.
class LowRankCodec : public Codec {
 public:
  // shape may be null.
  LowRankCodec(size_t rank, FactorFormat format, std::shared_ptr<const MessageShape> shape)
      : rank_(rank), format_(format), shape_(std::move(shape)) {}

  size_t MaxFrameBytes(size_t n) const override;
  Exchange exchange() const override { return Exchange::kAllGather; }
  Result<std::shared_ptr<const Codec>> WithShapes(
      std::span<const TensorShape> shapes) const override;

  size_t rank() const { return rank_; }
  FactorFormat format() const { return format_; }

 protected:
  // The most bytes that the tensor's numbers take.
  virtual size_t MaxBytes(const PlacedTensor& tensor) const = 0;
  virtual size_t MostColumns() const { return kMaxFrameElements; }
  virtual std::shared_ptr<const Codec> Reshaped(
      std::shared_ptr<const MessageShape> shape) const = 0;

  // The tensors of a message of n values; without shapes `single` is made the only one. Fails
  // if the shapes are those of another length.
  Result<std::span<const PlacedTensor>> TensorsOf(size_t n, PlacedTensor* single) const;
  // Whether a tensor is sent as `rank` columns of factors, or value by value.
  bool Compresses(const PlacedTensor& tensor) const { return FactorsAreShorter(tensor, rank_); }

 private:
  const size_t rank_;
  const FactorFormat format_;
  const std::shared_ptr<const MessageShape> shape_;
};

// Of a spec's key `rank`.
Result<size_t> ParseRank(const SpecPart& part, std::string_view codec,
                         std::string_view fallback);

// Names the first value that is not finite; there must be one.
Status NonFiniteIn(std::span<const float> values, size_t begin);

}  // namespace elastiquant
