// The wire format of low-rank codecs: the tensors of a message, each as two factors whose
// product it is, or value by value. docs/frame-format.md specifies it.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/message_shape.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {

// Stable numbers: they travel in frames. 16 bits are bfloat16, because factors have the scale
// of gradients, for which binary16 has no range.
enum class FactorFormat : uint8_t { kFp32 = 0, kBf16 = 1 };
constexpr size_t FactorBytes(FactorFormat format) {
  return format == FactorFormat::kFp32 ? 4 : 2;
}

// False if a value is NaN or infinite.
bool PackFactors(FactorFormat format, std::span<const float> values, uint8_t* out);
bool UnpackFactors(FactorFormat format, const uint8_t* in, std::span<float> values);

inline constexpr size_t kLowRankParameters = 8;
inline constexpr size_t kLowRankRecord = 12;         // rows, columns, rank
inline constexpr uint32_t kDenseRank = 0xFFFFFFFFu;  // all values, as fp32

// Where the numbers of a frame with so many tensors begin.
constexpr size_t LowRankNumbersOffset(size_t tensors) {
  return FramePayloadOffset(kLowRankParameters) + tensors * kLowRankRecord;
}

// Writes one frame, tensor by tensor. The frame must have room for all of them.
class LowRankWriter {
 public:
  LowRankWriter(FactorFormat format, size_t tensors, std::span<uint8_t> frame);

  // `values` are those of the tensor. The error names the first one that is not finite.
  Status AddDense(const PlacedTensor& tensor, std::span<const float> values);
  // Then come p, of rank * rows values, and q, of rank * cols, both column after column. Their
  // product must be finite.
  void BeginFactors(const PlacedTensor& tensor, size_t rank);
  // Rounds it to what a decoder gets.
  void AddFactor(std::span<float> factor);
  // The frame's size.
  size_t Seal(size_t elements, StreamKey key);

 private:
  void AddRecord(const PlacedTensor& tensor, uint32_t rank);

  const FactorFormat format_;
  const std::span<uint8_t> frame_;
  const size_t tensors_;
  size_t records_ = 0;
  size_t next_;
};

Status DecodeLowRank(const FrameView& frame, const DecodeSink& sink, Workspace& work);

}  // namespace elastiquant
