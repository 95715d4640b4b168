#include "elastiquant/exchange/sparse_sum.h"

#include "elastiquant/codec/codec.h"
#include "elastiquant/exchange/fp32_codec.h"

namespace elastiquant {
namespace {

// The threshold is the least float.
const Codec& Sparse() {
  static const auto codec = MakeCodec("threshold:value=1e-45,bits=exact").value();
  return *codec;
}

}  // namespace

size_t MaxSparseSumBytes(size_t n) { return Sparse().MaxFrameBytes(n); }

Result<size_t> EncodeSparseSum(std::span<const float> sum, StreamKey key, Workspace& work,
                               std::span<uint8_t> frame) {
  EQ_ASSIGN_OR_RETURN(const size_t size, Sparse().Encode(sum, key, work, frame));
  if (size <= Fp32Codec().MaxFrameBytes(sum.size())) return size;
  return Fp32Codec().Encode(sum, key, work, frame);
}

}  // namespace elastiquant
