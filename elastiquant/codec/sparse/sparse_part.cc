#include "elastiquant/codec/sparse/sparse_part.h"

#include <limits>

#include "elastiquant/codec/sparse/chunk_format.h"
#include "elastiquant/codec/sparse/sparse_write.h"

namespace elastiquant {
namespace {

// Of the parts of such a frame. Chunks end nowhere near those of a bucket: what is kept of them
// goes on as exact values of a sparse frame.
Result<SparseFormat> FormatOfParts(const FrameView& whole) {
  SparseFormat format;
  if (whole.codec == CodecId::kChunks) {
    EQ_ASSIGN_OR_RETURN(const ChunkFormat chunks, ReadChunkParameters(whole));
    format.bits = chunks.bits == kExactChunkBits ? kExactBits : chunks.bits;
  } else if (whole.codec == CodecId::kSparse) {
    EQ_ASSIGN_OR_RETURN(format, ReadSparseParameters(whole));
  } else {
    return Unsupported("a frame without positions cannot be cut into parts");
  }
  if (HasSparseParts(format.bits)) return format;
  return Unsupported("a frame whose values have 8 or fewer bits cannot be cut into parts");
}

}  // namespace

size_t MaxSparsePartBytes(size_t n) {
  return MaxSparseFrameBytes(n, n, 32, SparsePlacement::kListed);
}

Result<size_t> EncodeSparsePart(std::span<const uint8_t> whole, std::span<const float> values,
                                Workspace& work, std::span<uint8_t> frame) {
  EQ_RETURN_IF_ERROR(
      CheckEncodeSizes(values.size(), MaxSparsePartBytes(values.size()), frame.size()));
  EQ_ASSIGN_OR_RETURN(const FrameView view, ParseFrame(whole));
  EQ_ASSIGN_OR_RETURN(const SparseFormat format, FormatOfParts(view));
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
