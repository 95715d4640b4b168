#include "elastiquant/codec/dither_format.h"

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
  const auto bad = [](const char* what) {
    return CorruptData(std::string("frame parameter check failed: ") + what);
  };
  if (frame.flags != 0) return bad("dither has no flags");
  if (frame.parameters.size() != kDitherParameterBytes) return bad("dither has 12 bytes");
  ByteReader reader(frame.parameters);
  uint8_t density = 0, phase = 0;
  uint16_t reserved = 0;
  DitherFormat format;
  reader.Read(&density);
  reader.Read(&phase);
  reader.Read(&reserved);
  reader.Read(&format.step);
  reader.Read(&format.dithered);
  if (density > 1) return bad("the model is unknown");
  if (phase >= kDitherPhases) return bad("the phase is too large");
  if (reserved != 0) return bad("the reserved bytes are not 0");
  if (!(format.step >= 0) || !std::isfinite(format.step)) return bad("the step is not a step");
  if ((format.step == 0) != (format.dithered == 0) || format.dithered > frame.elements) {
    return bad("step and dithered coordinates contradict each other");
  }
  format.density = static_cast<DitherDensity>(density);
  format.phase = phase;
  return format;
}

void SortDitherBlocks(const uint8_t* classes, size_t count, DitherOrder* order) {
  uint16_t ends[kDitherClasses] = {};
  for (size_t b = 0; b < count; ++b) ++ends[classes[b]];
  ends[0] = 0;
  for (size_t c = 1; c < kDitherClasses; ++c)
    ends[c] = static_cast<uint16_t>(ends[c] + ends[c - 1]);
  order->count = ends[kDitherClasses - 1];
  for (size_t b = count; b-- > 0;) {
    if (classes[b] != 0) order->blocks[--ends[classes[b]]] = static_cast<uint16_t>(b);
  }
}

}  // namespace elastiquant
