#include "elastiquant/codec/low_rank/low_rank_format.h"

#include <array>
#include <cassert>
#include <cstring>
#include <string>

#include "elastiquant/base/bytes.h"
#include "elastiquant/kernels/convert.h"

namespace elastiquant {

bool PackFactors(FactorFormat format, std::span<const float> values, uint8_t* out) {
  const auto pack = format == FactorFormat::kFp32 ? PackFp32 : PackBf16;
  return pack(values.data(), values.size(), out) == values.size();
}

bool UnpackFactors(FactorFormat format, const uint8_t* in, std::span<float> values) {
  const auto unpack = format == FactorFormat::kFp32 ? UnpackFp32 : UnpackBf16;
  return unpack(in, values.size(), values.data());
}

LowRankWriter::LowRankWriter(FactorFormat format, size_t tensors, std::span<uint8_t> frame)
    : format_(format), frame_(frame), tensors_(tensors), next_(LowRankNumbersOffset(tensors)) {}

void LowRankWriter::AddRecord(const PlacedTensor& tensor, uint32_t rank) {
  assert(records_ < tensors_);
  const std::array<uint32_t, 3> record{static_cast<uint32_t>(tensor.shape.rows),
                                       static_cast<uint32_t>(tensor.shape.cols), rank};
  std::memcpy(frame_.data() + LowRankNumbersOffset(records_), record.data(), kLowRankRecord);
  ++records_;
}

Status LowRankWriter::AddDense(const PlacedTensor& tensor, std::span<const float> values) {
  assert(values.size() == tensor.size);
  // A matrix that is cut short is a row: nothing hangs on its shape.
  const bool whole = tensor.size == tensor.shape.rows * tensor.shape.cols;
  AddRecord(whole ? tensor : PlacedTensor{{1, tensor.size}, tensor.begin, tensor.size},
            kDenseRank);
  const size_t packed = PackFp32(values.data(), values.size(), frame_.data() + next_);
  if (packed < values.size()) {
    return NonFinite("the value at coordinate " + std::to_string(tensor.begin + packed) +
                     " is NaN or infinite");
  }
  next_ += 4 * values.size();
  return Status::Ok();
}

void LowRankWriter::BeginFactors(const PlacedTensor& tensor, size_t rank) {
  AddRecord(tensor, static_cast<uint32_t>(rank));
}

void LowRankWriter::AddFactor(std::span<float> factor) {
  uint8_t* const out = frame_.data() + next_;
  PackFactors(format_, factor, out);
  if (format_ != FactorFormat::kFp32) UnpackFactors(format_, out, factor);
  next_ += FactorBytes(format_) * factor.size();
}

size_t LowRankWriter::Seal(size_t elements, StreamKey key) {
  assert(records_ == tensors_);
  std::array<uint8_t, kLowRankParameters> parameters{};
  ByteWriter writer(parameters);
  writer.Write(format_);
  writer.Write(std::array<uint8_t, 3>{});
  writer.Write(static_cast<uint32_t>(tensors_));
  FrameView view;
  view.codec = CodecId::kLowRank;
  view.elements = elements;
  view.key = key;
  view.parameters = parameters;
  const size_t payload = FramePayloadOffset(kLowRankParameters);
  view.payload = frame_.subspan(payload, next_ - payload);
  return SealFrame(view, frame_);
}

}  // namespace elastiquant
