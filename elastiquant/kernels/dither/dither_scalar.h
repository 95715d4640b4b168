// The dither kernels for one coordinate at a time. This is the definition that the SIMD loops
// must match to the bit, and it codes the blocks that those leave out.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "elastiquant/kernels/dither/dither_kernels.h"
#include "elastiquant/kernels/rans/rans_kernels.h"

namespace elastiquant::scalar {

struct DitherInterval {
  uint32_t start, frequency;
};

// The frequencies of one class in all lanes.
class DitherTable {
 public:
  DitherTable(const DitherModel& model, int id) : symbols_(DitherClassOf(id).symbols()) {
    if (id <= kDitherNarrow) {
      table_ = model.narrow[id][0];
      stride_ = 16;
      shift_ = 4;
    } else {
      table_ = model.wide[id];
      bin_shift_ = DitherClassOf(id).bins == 2 ? 3 : 4;
    }
  }
  // Returns the interval of a symbol in a lane.
  DitherInterval Of(int symbol, size_t lane) const {
    const uint32_t start = Start(symbol, lane);
    return {start, (symbol + 1 < symbols_ ? Start(symbol + 1, lane) : kRansScale) - start};
  }
  // Returns the symbol whose interval has the slot.
  int Find(uint32_t slot, size_t lane) const {
    int low = 0;
    for (int left = symbols_; left > 1;) {
      const int half = left / 2;
      low += Start(low + half, lane) <= slot ? half : 0;
      left -= half;
    }
    return low;
  }

 private:
  uint32_t Start(int symbol, size_t lane) const {
    const size_t s = static_cast<size_t>(symbol);
    if (stride_ == 16) return static_cast<uint32_t>(table_[s * 16 + lane] >> shift_);
    return table_[(lane >> bin_shift_) * static_cast<size_t>(symbols_) + s];
  }
  const uint16_t* table_;
  int symbols_;
  int stride_ = 1;
  int shift_ = 0;
  int bin_shift_ = 0;
};

// Returns whether a place of a block has a coordinate.
inline bool IsPresent(DitherShape shape, size_t row, size_t lane) {
  return row + 1 < shape.rows || (shape.last_present >> lane & 1) != 0;
}
inline size_t CountPresent(DitherShape shape) {
  if (shape.rows == 0) return 0;
  return (shape.rows - 1) * kDitherRow + static_cast<size_t>(std::popcount(shape.last_present));
}
// Lists the places that have a coordinate, in order, and returns their number.
inline size_t ListPresent(DitherShape shape, uint8_t* places) {
  size_t count = 0;
  for (size_t place = 0; place < shape.rows * kDitherRow; ++place) {
    if (IsPresent(shape, place / kDitherRow, place % kDitherRow)) {
      places[count++] = static_cast<uint8_t>(place);
    }
  }
  return count;
}

// Encodes one symbol. `turn` is the number of its place in an encoder's block.
inline void EncodeDitherSymbol(DitherInterval in, size_t turn, DitherWriter* writer) {
  uint32_t& x = writer->states[turn & (writer->lanes - 1)];
  const uint32_t emits = x >> 20 >= in.frequency ? 1 : 0;
  std::memcpy(writer->words, &x, 2);
  writer->words += 2 * emits;
  x >>= 16 * emits;
  x = (x / in.frequency << kRansScaleBits) + x % in.frequency + in.start;
}

// Encodes the symbols alone, without escapes and raw bits. Returns whether there are escapes.
inline bool EncodeDitherSymbols(const int32_t* indices, DitherShape shape,
                                const DitherModel& model, int id, DitherWriter* writer) {
  const DitherClass c = DitherClassOf(id);
  const DitherTable table(model, id);
  bool escaped = false;
  for (size_t place = shape.rows * kDitherRow; place-- > 0;) {
    const size_t lane = place % kDitherRow;
    if (!IsPresent(shape, place / kDitherRow, lane)) continue;
    const int32_t high = indices[DitherTurn(place)] >> c.raw;
    const bool outside = high < -c.reach || high > c.reach;
    escaped |= outside;
    EncodeDitherSymbol(table.Of(outside ? 2 * c.reach + 1 : high + c.reach, lane),
                       DitherTurn(place), writer);
  }
  return escaped;
}

// Decodes one symbol. Returns false if words run out.
inline bool DecodeDitherSymbol(DitherReader* reader, const DitherTable& table, size_t place,
                               int* symbol) {
  const size_t lane = place % kDitherRow;
  const size_t s = place & (reader->lanes - 1);
  uint32_t x = reader->state(s);
  const uint32_t slot = x & (kRansScale - 1);
  *symbol = table.Find(slot, lane);
  const DitherInterval in = table.Of(*symbol, lane);
  x = in.frequency * (x >> kRansScaleBits) + slot - in.start;
  if (x < kRansLow) {
    if (reader->bytes - reader->words < 2) return false;
    uint16_t word;
    std::memcpy(&word, reader->words, 2);
    reader->words += 2;
    x = x << 16 | word;
  }
  reader->set_state(s, x);
  return true;
}

// Sets `indices` to symbol - reach for all places, where reach + 1 stands for an escape.
// Returns false if words run out.
inline bool DecodeDitherSymbols(DitherReader* reader, DitherShape shape,
                                const DitherModel& model, int id, int32_t* indices,
                                bool* escaped) {
  const DitherClass c = DitherClassOf(id);
  const DitherTable table(model, id);
  *escaped = false;
  for (size_t place = 0; place < shape.rows * kDitherRow; ++place) {
    indices[place] = 0;
    if (!IsPresent(shape, place / kDitherRow, place % kDitherRow)) continue;
    int symbol;
    if (!DecodeDitherSymbol(reader, table, place, &symbol)) return false;
    indices[place] = symbol - c.reach;
    *escaped |= symbol == 2 * c.reach + 1;
  }
  return true;
}

// Quantises the coordinates of a block from `begin` on, which is the first of a row.
inline void DitherQuantize(const float* values, size_t begin, size_t length, LaneKeys keys,
                           uint32_t first, DitherScale scale, int32_t* indices) {
  for (size_t row = begin; row < length; row += kDitherRow) {
    const DitherLanes lanes = LanesOfRow(keys, first + static_cast<uint32_t>(row));
    for (size_t c = 0; c < kDitherRow && row + c < length; ++c) {
      const auto i = static_cast<uint32_t>(row + c);
      const uint32_t j = (lanes.a * static_cast<uint32_t>(c) + lanes.b) & 15;
      const uint32_t u = j << 20 | RandomBits(keys, first + i) >> 12;
      const float y = (values[i] * scale.pre) * scale.mul;
      const float z = y + static_cast<float>(u) * 0x1p-24f;
      indices[DitherTurn(row + j)] = static_cast<int32_t>(std::floor(z));
    }
  }
}

// Dequantises the coordinates of a block from `begin` on, which is the first of a row.
inline void DitherDequantize(const int32_t* indices, size_t begin, size_t length, LaneKeys keys,
                             uint32_t first, float step, DitherSink sink, float* values) {
  for (size_t row = begin; row < length; row += kDitherRow) {
    const DitherLanes lanes = LanesOfRow(keys, first + static_cast<uint32_t>(row));
    for (size_t c = 0; c < kDitherRow && row + c < length; ++c) {
      const auto i = static_cast<uint32_t>(row + c);
      const uint32_t j = (lanes.a * static_cast<uint32_t>(c) + lanes.b) & 15;
      const uint32_t u = j << 20 | RandomBits(keys, first + i) >> 12;
      const float centred = static_cast<float>(u) * 0x1p-24f - 0.5f;
      const float value = step * (static_cast<float>(indices[row + j]) - centred);
      if (sink.add) {
        values[i] += sink.weight * value;
      } else {
        values[i] = value;
      }
    }
  }
}

// Returns the sum of |v_i| * factor, in the order of DitherBlockMeans.
inline float DitherSum(const float* values, size_t length, float factor) {
  float columns[16] = {};
  for (size_t i = 0; i < length; ++i) columns[i % 16] += std::abs(values[i]) * factor;
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t c = 0; c < half; ++c) columns[c] += columns[c + half];
  }
  return columns[0];
}
inline float DitherBlockMean(const float* values, size_t length) {
  const float mean = DitherSum(values, length, 1) / static_cast<float>(length);
  if (std::isfinite(mean)) return mean;
  // The sum of finite values may be infinite where their mean is not.
  return DitherSum(values, length, 0x1p-7f) * (0x1p7f / static_cast<float>(length));
}

inline uint8_t DitherClassFor(float mean, DitherScale scale, float shift) {
  // The mantissas of the floats next to 2^(1/4) and 2^(3/4).
  constexpr int32_t kQuarter = std::bit_cast<int32_t>(1.1892071f) & 0x7FFFFF;
  constexpr int32_t kThreeQuarters = std::bit_cast<int32_t>(1.6817929f) & 0x7FFFFF;
  const auto bits = std::bit_cast<int32_t>((mean * scale.pre) * scale.mul * shift);
  const int32_t mantissa = bits & 0x7FFFFF;
  const int32_t half = (mantissa >= kQuarter ? 1 : 0) + (mantissa >= kThreeQuarters ? 1 : 0);
  // Denormal floats get the exponent -127, which is low enough.
  const int32_t id = 2 * ((bits >> 23) - 127) + half + kDitherUnitClass;
  return static_cast<uint8_t>(mean == 0 ? 0 : std::clamp(id, 1, kDitherClasses - 1));
}

// Write and read what a block takes besides its symbols, which is escapes and raw bits. They
// are not scalar, but called by all. ReadDitherRest returns false if bytes run out or an index
// is too large.
void AppendDitherRest(const int32_t* indices, DitherShape shape, int id, bool escaped,
                      DitherWriter* writer);  // dither_encode.cc
bool ReadDitherRest(DitherReader* reader, DitherShape shape, int id, bool escaped,
                    int32_t* indices);  // dither_decode.cc
// Moves what is left, if that is little, to where any block may read ahead of it.
void SecureDitherReadAhead(DitherReader* reader);  // dither_decode.cc

}  // namespace elastiquant::scalar
