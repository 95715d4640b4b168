#include "elastiquant/codec/dither/dither_format.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "elastiquant/base/bytes.h"

namespace elastiquant {

std::array<uint8_t, kDitherParameterBytes> WriteDitherParameters(const DitherFormat& format) {
  std::array<uint8_t, kDitherParameterBytes> bytes;
  ByteWriter writer(bytes);
  writer.Write(static_cast<uint8_t>(format.density));
  writer.Write(static_cast<uint8_t>(format.phase));
  writer.Write(uint16_t{0});
  writer.Write(format.step);
  writer.Write(format.dithered);
  return bytes;
}

Result<DitherFormat> ReadDitherParameters(const FrameView& frame) {
  if (frame.flags != 0) return BadParameters("dither has no flags");
  if (frame.parameters.size() != kDitherParameterBytes) {
    return BadParameters("dither has 12 bytes");
  }
  ByteReader reader(frame.parameters);
  uint8_t density = 0, phase = 0;
  uint16_t reserved = 0;
  DitherFormat format;
  reader.Read(&density);
  reader.Read(&phase);
  reader.Read(&reserved);
  reader.Read(&format.step);
  reader.Read(&format.dithered);
  if (density > 1) return BadParameters("the model is unknown");
  if (phase >= kDitherPhases) return BadParameters("the phase is too large");
  if (reserved != 0) return BadParameters("the reserved bytes are not 0");
  if (!(format.step >= 0) || !std::isfinite(format.step)) {
    return BadParameters("the step is not a step");
  }
  if ((format.step == 0) != (format.dithered == 0) || format.dithered > frame.elements) {
    return BadParameters("step and dithered coordinates contradict each other");
  }
  format.density = static_cast<DitherDensity>(density);
  format.phase = phase;
  return format;
}

// Counting sort, in four parts side by side: most blocks have the class of the one before,
// whose counter would have to be waited for.
void SortDitherBlocks(const uint8_t* classes, size_t count, DitherOrder* order) {
  constexpr size_t kParts = 4, kPart = kDitherGroup / kParts;
  uint16_t next[kParts][kDitherClasses] = {};
  const size_t whole = count == kDitherGroup ? kPart : 0;
  for (size_t i = 0; i < whole; ++i) {
    for (size_t p = 0; p < kParts; ++p) ++next[p][classes[p * kPart + i]];
  }
  for (size_t b = kParts * whole; b < count; ++b) ++next[0][classes[b]];
  size_t place = 0;
  for (size_t c = 1; c < kDitherClasses; ++c) {
    for (auto& part : next) {
      const size_t blocks = part[c];
      part[c] = static_cast<uint16_t>(place);
      place += blocks;
    }
  }
  const auto put = [&](size_t p, size_t b) {
    const uint8_t c = classes[b];
    if (c != 0) order->blocks[next[p][c]++] = static_cast<uint16_t>(b);
  };
  for (size_t i = 0; i < whole; ++i) {
    for (size_t p = 0; p < kParts; ++p) put(p, p * kPart + i);
  }
  for (size_t b = kParts * whole; b < count; ++b) put(0, b);
  std::copy_n(next[kParts - 1], kDitherClasses, order->ends);
  order->ends[0] = 0;
}

}  // namespace elastiquant
