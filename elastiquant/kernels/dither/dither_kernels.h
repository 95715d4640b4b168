// The inner loops of the dither codec. Blocks of up to 128 coordinates are quantised with
// subtractive dither and coded with rANS (12-bit frequencies, 32-bit states in [2^16, 2^32),
// 16-bit words). docs/frame-format.md says what stands where. Bytes and values do not depend on
// the SIMD target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/base/random.h"

namespace elastiquant {

inline constexpr size_t kDitherBlock = 128;  // coordinates that share a class
inline constexpr size_t kDitherRow = 16;     // coordinates that have all dither bins among them
inline constexpr int kDitherClasses = 64;    // in class 0 all values are zero
inline constexpr int kDitherUnitClass = 17;  // its scale is the step, but for the phase
inline constexpr int kDitherNarrow = 17;     // classes 1 to 17 know 16 bins of the dither
inline constexpr size_t kMaxDitherLanes = 128;
// No encoder makes a greater |k|, and such a k is exact in a float.
inline constexpr int32_t kMaxDitherIndex = (1 << 24) - 1;

// Says how a class codes an index k: k >> raw lies in [-reach, reach] or is escaped.
struct DitherClass {
  uint8_t bins;   // bins of the dither with frequencies of their own: 16, 2 or 1
  uint8_t raw;    // low bits that are sent as they are
  uint8_t reach;  // symbols: (k >> raw) + reach, and 2 reach + 1 for an escape
  constexpr int symbols() const { return 2 * reach + 2; }
};
constexpr DitherClass DitherClassOf(int id) {
  if (id <= 9) return {16, 0, 1};
  if (id <= 12) return {16, 0, 2};
  if (id <= 13) return {16, 0, 3};
  if (id <= 15) return {16, 0, 5};
  if (id <= kDitherNarrow) return {16, 0, 7};
  if (id <= 19) return {2, 0, 15};
  return {1, static_cast<uint8_t>((id - 20) / 2), 31};
}

// The frequencies of all classes, as the places at which the symbols start in 0 to 4095.
// Entries that no symbol fills are 0, as is that behind the last symbol: modulo 4096, this is
// where the next one would start.
struct DitherModel {
  alignas(64) uint16_t narrow[kDitherNarrow + 1][16][16];  // [class][symbol][j]:
                                                           // start << 4 | symbol
  alignas(64) uint16_t wide[kDitherClasses][64];           // [class][bin * symbols + symbol]
};

// Returns the number of a place in an encoder's block. A decoder takes the places of a block
// upwards and an encoder downwards, so place p has the number 127 - p in an encoder's block,
// and state s of S has the number S - 1 - s.
constexpr size_t DitherTurn(size_t place) { return kDitherBlock - 1 - place; }

// The bytes of the words that a full block may take, and of what a vector may read behind them.
inline constexpr size_t kDitherReadAhead = 2 * kDitherBlock + 64;

// Where the decoder of a tile stands. Words are read upwards, and bytes downwards.
struct DitherReader {
  const uint8_t* words;
  const uint8_t* bytes;                       // one after the next byte; words <= bytes
  alignas(64) uint16_t low[kMaxDitherLanes];  // halves of the states
  alignas(64) uint16_t high[kMaxDitherLanes];
  size_t lanes;  // a power of 2; place p of a block has state p mod lanes
  // The last bytes are moved here, so that vectors may be read beyond them.
  uint8_t tail[2 * kDitherReadAhead];

  uint32_t state(size_t s) const { return static_cast<uint32_t>(high[s]) << 16 | low[s]; }
  void set_state(size_t s, uint32_t x) {
    low[s] = static_cast<uint16_t>(x);
    high[s] = static_cast<uint16_t>(x >> 16);
  }
};
// Where the encoder of a tile stands. Words and bytes are both written upwards, but read in
// reverse.
struct DitherWriter {
  uint8_t* words;
  uint8_t* bytes;
  alignas(64) uint32_t states[kMaxDitherLanes];
  size_t lanes;
};

// The bytes that must be free behind words, and also behind bytes, for one block more.
inline constexpr size_t kMaxDitherBlockBytes = 1200;

// Says which places of a block have a coordinate.
struct DitherShape {
  size_t rows;            // all but the last are full
  uint32_t last_present;  // bit j is set if the last row has a coordinate in lane j
  constexpr bool full() const {
    return rows == kDitherBlock / kDitherRow && last_present == 0xFFFF;
  }
};

// Adds a block in front of those that are there. indices[DitherTurn(p)] is that of place p; the
// indices of places without a coordinate are not looked at.
void EncodeDitherIndices(const int32_t* indices, DitherShape shape, const DitherModel& model,
                         int id, DitherWriter* writer);
// Decodes a block; indices[p] is that of place p. Returns false if words or bytes run out, or
// if an index is too large.
bool DecodeDitherIndices(DitherReader* reader, DitherShape shape, const DitherModel& model,
                         int id, int32_t* indices);

// The lanes of a row of a message: coordinate c of the row is in lane (a c + b) mod 16.
struct DitherLanes {
  uint32_t a, b;
};
constexpr DitherLanes LanesFromBits(uint32_t bits) {
  return {2 * (bits & 7) + 1, bits >> 3 & 15};
}
// Returns the lanes of the row whose first coordinate is `first`.
constexpr DitherLanes LanesOfRow(LaneKeys keys, uint32_t first) {
  return LanesFromBits(RandomBits(keys, first));
}
// Returns the shape of a block of numbers that are not coordinates: number i is in lane i mod
// 16. length > 0.
constexpr DitherShape PlainShape(size_t length) {
  const size_t last = (length - 1) % kDitherRow + 1;
  return {(length + kDitherRow - 1) / kDitherRow, (1u << last) - 1};
}
// Returns the shape of the block of `length` coordinates that begins with coordinate `first`, a
// multiple of 16.
DitherShape ShapeOfBlock(LaneKeys keys, uint32_t first, size_t length);

// Says how values become indices: y = (v * pre) * mul is v in steps.
struct DitherScale {
  float pre, mul;
};
// Returns the scale of a step, which is above 0 and finite.
DitherScale MakeDitherScale(float step);

// Sets indices[DitherTurn(16 * row + j)] = floor(y + U / 2^24), where j is the lane of the
// coordinate and U = j 2^20 + the upper 20 random bits. `first` is a multiple of 16. All |y|
// are below 2^23.
void DitherQuantize(const float* values, size_t length, LaneKeys keys, uint32_t first,
                    DitherScale scale, int32_t* indices);
// Says whether values are stored, or added after multiplication by `weight`.
struct DitherSink {
  bool add;
  float weight;
};
// Stores or adds the value step * (k - U / 2^24 + 1/2) of k = indices[16 * row + j].
void DitherDequantize(const int32_t* indices, size_t length, LaneKeys keys, uint32_t first,
                      float step, DitherSink sink, float* values);

// Some blocks of a message, all of them full, in the order of decoding.
struct DitherRun {
  const uint16_t* blocks;  // their numbers, where block b begins 128 b behind `first`
  size_t count;
  uint32_t first;  // the coordinate that block 0 begins with
  // What the caller works on next, 128 floats for each block of the run, which is fetched
  // meanwhile, as no processor foresees the order. It may be null.
  const float* soon;
};
// Calls DitherQuantize and EncodeDitherIndices for each block, the last one first. `values` are
// those from block 0 on.
void EncodeDitherRun(const float* values, const DitherRun& run, LaneKeys keys,
                     DitherScale scale, const DitherModel& model, int id, DitherWriter* writer);
// Calls DecodeDitherIndices and DitherDequantize for each block. Returns false if one fails.
bool DecodeDitherRun(DitherReader* reader, const DitherRun& run, LaneKeys keys, float step,
                     DitherSink sink, const DitherModel& model, int id, float* values);

// Sets `means` to the mean absolute value of each block of 128, summed in a fixed order: at
// first the rows are added up to sixteen columns. A mean is NaN or infinite only if a value is,
// or by rounding of the largest floats.
void DitherBlockMeans(const float* values, size_t n, float* means);

// Sets `classes` to the class of each block by its mean. scale.pre and .mul are as for values,
// and `shift` is that of the phase. Classes are half octaves, rounded; class 0 is only that of
// a mean of 0.
void DitherClasses(const float* means, size_t n, DitherScale scale, float shift,
                   uint8_t* classes);

}  // namespace elastiquant
