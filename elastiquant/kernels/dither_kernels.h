// The inner loops of the dither codec: blocks of up to 128 coordinates are quantised with
// subtractive dither and coded with rANS (12-bit frequencies, 32-bit states in [2^16, 2^32),
// 16-bit words). docs/frame-format.md says what stands where. Bytes and values do not depend
// on the SIMD target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/base/random.h"

namespace elastiquant {

inline constexpr size_t kDitherBlock = 128;  // coordinates of a class
inline constexpr size_t kDitherRow = 16;     // coordinates that have all dither bins among them
inline constexpr int kDitherClasses = 64;    // class 0: all zero
inline constexpr int kDitherUnitClass = 17;  // its scale is the step, but for the phase
inline constexpr int kDitherNarrow = 17;     // classes 1 to 17 know 16 bins of the dither
inline constexpr size_t kMaxDitherLanes = 128;
// More than |k| of any encoder: such a k is exact in a float.
inline constexpr int32_t kMaxDitherIndex = (1 << 24) - 1;

// How a class codes an index k: k >> raw lies in [-reach, reach] or is escaped.
struct DitherClass {
  uint8_t bins;   // of the dither, that have frequencies of their own: 16, 2 or 1
  uint8_t raw;    // low bits that are sent as they are
  uint8_t reach;  // symbols: k + reach, and 2 reach + 1 for an escape
  int symbols() const { return 2 * reach + 2; }
};
DitherClass DitherClassOf(int id);

// The frequencies of all classes, as the places at which the symbols start in 0 to 4095.
struct DitherModel {
  alignas(
      64) uint16_t narrow[kDitherNarrow + 1][16][16];  // [class][symbol][j]: start<<4|symbol
  alignas(64) uint16_t wide[kDitherClasses][64];       // [class][bin * symbols + symbol]
};

// Where the coder of a tile stands. Words are read upwards and written downwards, bytes the
// other way round.
struct DitherReader {
  const uint8_t* words;
  const uint8_t* bytes;  // one after the next byte; words <= bytes
  uint32_t states[kMaxDitherLanes];
  size_t lanes;  // a power of 2; place 16 row + j of a block has state (16 row + j) mod lanes
};
struct DitherWriter {
  uint8_t* words;
  uint8_t* bytes;
  uint32_t states[kMaxDitherLanes];
  size_t lanes;
};

// The most that one block may add to words and bytes.
inline constexpr size_t kMaxDitherBlockBytes = 1200;

// Adds a block of `length` indices in order of their lanes to the front of what is there.
// `present` has a bit for each lane of the last row that has a coordinate.
struct DitherShape {
  size_t rows;            // all but the last are full
  uint32_t last_present;  // bit j: the last row has a coordinate in lane j
};
// Indices stand at row * 16 + j.
void EncodeDitherIndices(const int32_t* indices, DitherShape shape, const DitherModel& model,
                         int id, DitherWriter* writer);
// False if words or bytes run out, or an index is too large.
bool DecodeDitherIndices(DitherReader* reader, DitherShape shape, const DitherModel& model,
                         int id, int32_t* indices);

// The lanes of row `row` of a message: coordinate c of it is in lane (a c + b) mod 16.
struct DitherLanes {
  uint32_t a, b;
};
constexpr DitherLanes LanesOfRow(LaneKeys keys, uint32_t first) {
  const uint32_t bits = RandomBits(keys, first);
  return {2 * (bits & 7) + 1, bits >> 3 & 15};
}
// Of numbers that are not coordinates: number i is in lane i mod 16. length > 0.
constexpr DitherShape PlainShape(size_t length) {
  const size_t last = (length - 1) % kDitherRow + 1;
  return {(length + kDitherRow - 1) / kDitherRow, (1u << last) - 1};
}
DitherShape ShapeOfBlock(LaneKeys keys, uint32_t first, size_t length);

// How values become indices: y = (v * pre) * mul is v in steps.
struct DitherScale {
  float pre, mul;
};
// step > 0 and finite.
DitherScale MakeDitherScale(float step);

// indices[row * 16 + j] = floor(y + U / 2^24), U = j 2^20 + the upper 20 random bits.
void DitherQuantize(const float* values, size_t length, LaneKeys keys, uint32_t first,
                    DitherScale scale, int32_t* indices);
struct DitherSink {
  bool add;
  float weight;
};
// Value step * (k - U / 2^24 + 1/2), stored or added.
void DitherDequantize(const int32_t* indices, size_t length, LaneKeys keys, uint32_t first,
                      float step, DitherSink sink, float* values);

// The mean absolute value of a block, summed in a fixed order: sixteen columns of rows first.
// Not finite only if a value is not.
float DitherBlockMean(const float* values, size_t length);

}  // namespace elastiquant
