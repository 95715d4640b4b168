#include "elastiquant/codec/sparse/sparse_part.h"

#include <limits>

#include "elastiquant/codec/sparse/sparse_write.h"

namespace elastiquant {

size_t MaxSparsePartBytes(size_t n) {
  return MaxSparseFrameBytes(n, n, 32, SparsePlacement::kListed);
}

Result<size_t> EncodeSparsePart(std::span<const uint8_t> whole, std::span<const float> values,
                                Workspace& work, std::span<uint8_t> frame) {
  EQ_RETURN_IF_ERROR(
      CheckEncodeSizes(values.size(), MaxSparsePartBytes(values.size()), frame.size()));
  EQ_ASSIGN_OR_RETURN(const FrameView view, ParseFrame(whole));
  if (view.codec != CodecId::kSparse) {
    return Unsupported("a frame without positions cannot be cut into parts");
  }
  EQ_ASSIGN_OR_RETURN(const SparseFormat format, ReadSparseParameters(view));
  if (!HasSparseParts(format.bits)) {
    return Unsupported("a frame whose values have 8 or 4 bits cannot be cut into parts");
  }
  SparseMessage message;
  message.magnitude = format.magnitude;
  message.decoded = true;
  if (!values.empty()) {
    EQ_ASSIGN_OR_RETURN(message.kept,
                        SelectAtLeast(values, std::numeric_limits<float>::denorm_min(), work));
  }
  // Drawn positions are so of the whole only.
  return WriteSparseFrame(message, values.size(), SparsePlacement::kListed,
                          {.bits = format.bits, .exponent = format.exponent}, view.key, work,
                          frame);
}

}  // namespace elastiquant
