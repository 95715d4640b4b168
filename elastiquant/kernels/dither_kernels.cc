#include "elastiquant/kernels/dither_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace elastiquant {
namespace {

constexpr uint32_t kScale = 4096;
constexpr uint32_t kLow = 1u << 16;

struct Interval {
  uint32_t start, frequency;
};

// The frequencies of one class in one lane.
class LaneTable {
 public:
  LaneTable(const DitherModel& model, int id, const DitherClass& c) : symbols_(c.symbols()) {
    if (id <= kDitherNarrow) {
      table_ = model.narrow[id][0];
      stride_ = 16;
      shift_ = 4;
    } else {
      table_ = model.wide[id];
      bin_shift_ = c.bins == 2 ? 3 : 4;
    }
  }
  Interval Of(int symbol, size_t lane) const {
    const uint32_t start = Start(symbol, lane);
    return {start, (symbol + 1 < symbols_ ? Start(symbol + 1, lane) : kScale) - start};
  }
  int Find(uint32_t slot, size_t lane) const {
    int low = 0;
    for (int high = symbols_; high - low > 1;) {
      const int middle = (low + high) / 2;
      (Start(middle, lane) <= slot ? low : high) = middle;
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

bool Present(DitherShape shape, size_t row, size_t lane) {
  return row + 1 < shape.rows || (shape.last_present >> lane & 1) != 0;
}
size_t Count(DitherShape shape) {
  if (shape.rows == 0) return 0;
  return (shape.rows - 1) * kDitherRow + static_cast<size_t>(std::popcount(shape.last_present));
}

// Bytes of an escape, the first one to be read first: 7 bits each, the lowest first, with the
// highest bit set in all but the last.
size_t EscapeBytes(uint32_t excess, uint8_t bytes[5]) {
  size_t count = 0;
  for (; excess >= 128; excess >>= 7) bytes[count++] = static_cast<uint8_t>(excess | 128);
  bytes[count++] = static_cast<uint8_t>(excess);
  return count;
}
bool ReadEscape(DitherReader* reader, uint32_t* excess) {
  *excess = 0;
  for (int shift = 0; shift <= 21; shift += 7) {
    if (reader->bytes == reader->words) return false;
    const uint8_t byte = *--reader->bytes;
    *excess |= static_cast<uint32_t>(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

void EncodeSymbol(Interval in, size_t place, DitherWriter* writer) {
  uint32_t& x = writer->states[place & (writer->lanes - 1)];
  if (x >> 20 >= in.frequency) {
    writer->words -= 2;
    const auto word = static_cast<uint16_t>(x);
    std::memcpy(writer->words, &word, 2);
    x >>= 16;
  }
  x = (x / in.frequency << 12) + x % in.frequency + in.start;
}

bool DecodeSymbol(DitherReader* reader, const LaneTable& table, size_t place, int* symbol) {
  const size_t lane = place % kDitherRow;
  uint32_t& x = reader->states[place & (reader->lanes - 1)];
  const uint32_t slot = x & (kScale - 1);
  *symbol = table.Find(slot, lane);
  const Interval in = table.Of(*symbol, lane);
  x = in.frequency * (x >> 12) + slot - in.start;
  if (x < kLow) {
    if (reader->bytes - reader->words < 2) return false;
    uint16_t word;
    std::memcpy(&word, reader->words, 2);
    reader->words += 2;
    x = x << 16 | word;
  }
  return true;
}

}  // namespace

DitherShape ShapeOfBlock(LaneKeys keys, uint32_t first, size_t length) {
  const size_t rows = (length + kDitherRow - 1) / kDitherRow;
  if (length % kDitherRow == 0) return {rows, 0xFFFF};
  const size_t last = (rows - 1) * kDitherRow;
  const DitherLanes lanes = LanesOfRow(keys, first + static_cast<uint32_t>(last));
  uint32_t present = 0;
  for (uint32_t c = 0; last + c < length; ++c) present |= 1u << ((lanes.a * c + lanes.b) & 15);
  return {rows, present};
}

void EncodeDitherIndices(const int32_t* indices, DitherShape shape, const DitherModel& model,
                         int id, DitherWriter* writer) {
  const DitherClass c = DitherClassOf(id);
  const LaneTable table(model, id, c);
  const int reach = c.reach;
  const size_t count = Count(shape);
  const size_t plane_bytes = (count + 7) / 8;
  uint8_t planes[32 * (kDitherBlock / 8)] = {};
  size_t at = count;
  for (size_t row = shape.rows; row-- > 0;) {
    for (size_t lane = kDitherRow; lane-- > 0;) {
      if (!Present(shape, row, lane)) continue;
      --at;
      const int32_t k = indices[row * kDitherRow + lane];
      const int32_t high = k >> c.raw;
      int symbol = high + reach;
      if (high < -reach || high > reach) {
        symbol = 2 * reach + 1;
        const int32_t size = high < 0 ? -high : high;
        uint8_t bytes[5];
        size_t n = EscapeBytes(2 * static_cast<uint32_t>(size - reach - 1) + (high < 0), bytes);
        while (n > 0) *writer->bytes++ = bytes[--n];
      }
      for (size_t p = 0; p < c.raw; ++p) {
        const uint32_t bit = static_cast<uint32_t>(k) >> p & 1;
        planes[p * plane_bytes + at / 8] |= static_cast<uint8_t>(bit << at % 8);
      }
      EncodeSymbol(table.Of(symbol, lane), row * kDitherRow + lane, writer);
    }
  }
  for (size_t p = c.raw; p-- > 0;) {
    std::memcpy(writer->bytes, planes + p * plane_bytes, plane_bytes);
    writer->bytes += plane_bytes;
  }
}

bool DecodeDitherIndices(DitherReader* reader, DitherShape shape, const DitherModel& model,
                         int id, int32_t* indices) {
  const DitherClass c = DitherClassOf(id);
  const LaneTable table(model, id, c);
  const int reach = c.reach;
  uint8_t places[kDitherBlock];
  size_t count = 0;
  bool escaped = false;
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t lane = 0; lane < kDitherRow; ++lane) {
      const size_t place = row * kDitherRow + lane;
      indices[place] = 0;
      if (!Present(shape, row, lane)) continue;
      int symbol;
      if (!DecodeSymbol(reader, table, place, &symbol)) return false;
      places[count++] = static_cast<uint8_t>(place);
      indices[place] = symbol - reach;
      escaped |= symbol == 2 * reach + 1;
    }
  }
  const size_t plane_bytes = (count + 7) / 8;
  if (static_cast<size_t>(reader->bytes - reader->words) < c.raw * plane_bytes) return false;
  const uint8_t* planes = reader->bytes;
  reader->bytes -= c.raw * plane_bytes;
  for (size_t i = 0; escaped && i < count; ++i) {
    int32_t& high = indices[places[i]];
    if (high != reach + 1) continue;
    uint32_t excess;
    if (!ReadEscape(reader, &excess)) return false;
    const int32_t size = static_cast<int32_t>(excess >> 1) + reach + 1;
    if (static_cast<int64_t>(size) << c.raw > kMaxDitherIndex) return false;
    high = (excess & 1) != 0 ? -size : size;
  }
  for (size_t i = 0; c.raw > 0 && i < count; ++i) {
    uint32_t k = static_cast<uint32_t>(indices[places[i]]) << c.raw;
    for (size_t p = 0; p < c.raw; ++p) {
      const uint8_t* plane = planes - (p + 1) * plane_bytes;
      k |= static_cast<uint32_t>(plane[i / 8] >> i % 8 & 1) << p;
    }
    indices[places[i]] = static_cast<int32_t>(k);
  }
  return true;
}

DitherScale MakeDitherScale(float step) {
  // The reciprocal must be neither denormal nor infinite.
  const float pre = step < 0x1p-64f ? 0x1p85f : step > 0x1p64f ? 0x1p-64f : 1.0f;
  return {pre, 1.0f / (step * pre)};
}

void DitherQuantize(const float* values, size_t length, LaneKeys keys, uint32_t first,
                    DitherScale scale, int32_t* indices) {
  for (size_t row = 0; row < length; row += kDitherRow) {
    const DitherLanes lanes = LanesOfRow(keys, first + static_cast<uint32_t>(row));
    for (size_t c = 0; c < kDitherRow && row + c < length; ++c) {
      const auto i = static_cast<uint32_t>(row + c);
      const uint32_t j = (lanes.a * static_cast<uint32_t>(c) + lanes.b) & 15;
      const uint32_t u = j << 20 | RandomBits(keys, first + i) >> 12;
      const float y = (values[i] * scale.pre) * scale.mul;
      const float z = y + static_cast<float>(u) * 0x1p-24f;
      indices[row + j] = static_cast<int32_t>(std::floor(z));
    }
  }
}

void DitherDequantize(const int32_t* indices, size_t length, LaneKeys keys, uint32_t first,
                      float step, DitherSink sink, float* values) {
  for (size_t row = 0; row < length; row += kDitherRow) {
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

namespace {
float SumColumns(const float* values, size_t length, float factor) {
  float columns[16] = {};
  for (size_t i = 0; i < length; ++i) columns[i % 16] += std::abs(values[i]) * factor;
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t c = 0; c < half; ++c) columns[c] += columns[c + half];
  }
  return columns[0];
}
}  // namespace

float DitherBlockMean(const float* values, size_t length) {
  if (length == 0) return 0;
  const float mean = SumColumns(values, length, 1) / static_cast<float>(length);
  if (std::isfinite(mean)) return mean;
  // The sum of finite values may be too large where their mean is not.
  return SumColumns(values, length, 0x1p-7f) * (0x1p7f / static_cast<float>(length));
}

}  // namespace elastiquant
