#include "elastiquant/codec/sparse/sparse_format.h"

#include <cmath>
#include <string>

#include "elastiquant/base/bytes.h"
#include "elastiquant/codec/sparse/sparse_values.h"

namespace elastiquant {

std::array<uint8_t, kSparseParameterBytes> WriteSparseParameters(const SparseFormat& format) {
  std::array<uint8_t, kSparseParameterBytes> bytes;
  ByteWriter writer(bytes);
  writer.Write(static_cast<uint8_t>(format.placement));
  writer.Write(static_cast<uint8_t>(format.bits));
  writer.Write(static_cast<int16_t>(format.exponent));
  writer.Write(format.dropped);
  writer.Write(format.magnitude);
  return bytes;
}

Result<SparseFormat> ReadSparseParameters(const FrameView& frame) {
  if (frame.flags != 0) return BadParameters("sparse has no flags");
  if (frame.parameters.size() != kSparseParameterBytes) {
    return BadParameters("sparse has 12 bytes");
  }
  ByteReader reader(frame.parameters);
  uint8_t placement = 0, bits = 0;
  int16_t exponent = 0;
  SparseFormat format;
  reader.Read(&placement);
  reader.Read(&bits);
  reader.Read(&exponent);
  reader.Read(&format.dropped);
  reader.Read(&format.magnitude);
  if (placement > 1) return BadParameters("the placement is unknown");
  if (bits != kExactBits && !IsSparseValueWidth(bits)) {
    return BadParameters("values have 32, 16, 8 or 4 bits, or 0 if they are exact");
  }
  const bool in_range = bits == 16
                            ? exponent >= kMinSparseExponent && exponent <= kMaxSparseExponent
                            : exponent == 0;
  if (!in_range) return BadParameters("the exponent is out of range");
  if (format.dropped > frame.elements) {
    return BadParameters("more coordinates are dropped than there are");
  }
  if (!std::isfinite(format.magnitude) || std::signbit(format.magnitude)) {
    return BadParameters("the magnitude is not one");
  }
  format.placement = static_cast<SparsePlacement>(placement);
  if (format.placement == SparsePlacement::kDrawn && format.marked()) {
    return BadParameters("drawn coordinates have values, not signs");
  }
  if (bits == kExactBits && (format.placement == SparsePlacement::kDrawn || format.marked())) {
    return BadParameters("exact values have listed positions and no signs");
  }
  format.bits = bits;
  format.exponent = exponent;
  return format;
}

}  // namespace elastiquant
