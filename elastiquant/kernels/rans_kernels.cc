#include "elastiquant/kernels/rans_kernels.h"

#include <cstring>

namespace elastiquant {
namespace {

// One step of the encoder: the definition that every SIMD target must match.
inline uint32_t EncodeStep(uint32_t x, uint32_t frequency_start, uint8_t** words) {
  const uint32_t f = frequency_start & 0xFFFF;
  const uint32_t start = frequency_start >> 16;
  if (x >> 20 >= f) {
    std::memcpy(*words, &x, 2);
    *words += 2;
    x >>= 16;
  }
  const uint32_t quotient = x / f;
  return (quotient << kRansScaleBits) + (x - quotient * f) + start;
}

// The state after one step of the decoder, before a word may be appended to it.
inline uint32_t DecodeStep(uint32_t x, uint32_t slot) {
  return (slot >> 8 & 0xFFF) * (x >> kRansScaleBits) + (slot >> 20);
}

// Decodes rows while words last; false if they do not.
bool DecodeRowChecked(const uint8_t** words, const uint8_t* end, const RansDecoderTable& table,
                      uint32_t* states, size_t lanes, uint8_t* codes) {
  for (size_t lane = 0; lane < lanes; ++lane) {
    const uint32_t slot = table.slots[states[lane] & (kRansScale - 1)];
    codes[lane] = static_cast<uint8_t>(slot);
    uint32_t x = DecodeStep(states[lane], slot);
    if (x < kRansLow) {
      if (*words == end) return false;
      uint16_t word;
      std::memcpy(&word, *words, 2);
      *words += 2;
      x = x << 16 | word;
    }
    states[lane] = x;
  }
  return true;
}

}  // namespace

void MakeRansEncoderTable(const RansFrequencies& frequencies, RansEncoderTable* table) {
  uint32_t start = 0;
  table->small = true;
  for (size_t code = 0; code < 256; ++code) {
    const uint32_t f = frequencies.of[code];
    table->frequency_start[code] = f | start << 16;
    // Less by 2^-22 of itself: see the SIMD quotient.
    table->reciprocal[code] = f == 0 ? 0.0f : (1.0f - 0x1p-22f) / static_cast<float>(f);
    if (f != 0 && code >= 16) table->small = false;
    start += f;
  }
}

void MakeRansDecoderTable(const RansFrequencies& frequencies, RansDecoderTable* table) {
  uint32_t start = 0;
  int symbols = 0;
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t f = frequencies.of[code];
    if (f == 0) continue;
    for (uint32_t i = 0; i < f; ++i) table->slots[start + i] = code | f << 8 | i << 20;
    if (symbols < 16) {
      table->codes[symbols] = static_cast<uint8_t>(code);
      table->frequencies[symbols] = static_cast<uint16_t>(f);
      table->starts[symbols] = static_cast<uint16_t>(start);
    }
    ++symbols;
    start += f;
  }
  table->symbols = symbols <= 16 ? symbols : 0;
}

void CountCodes(const uint8_t* codes, size_t n, uint32_t counts[256]) {
  // Four counters a code, since counting the same one again must wait for the store before it.
  uint32_t parts[4][256] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t word;
    std::memcpy(&word, codes + i, 8);
    for (int j = 0; j < 8; ++j) ++parts[j % 4][word >> (8 * j) & 0xFF];
  }
  for (; i < n; ++i) ++parts[0][codes[i]];
  for (size_t c = 0; c < 256; ++c) {
    counts[c] = parts[0][c] + parts[1][c] + parts[2][c] + parts[3][c];
  }
}

size_t RansEncodeOne(const uint8_t* codes, size_t n, const RansEncoderTable& table,
                     uint32_t* state, uint8_t* words, size_t capacity) {
  uint8_t* next = words;
  const uint8_t* end = words + 2 * capacity;
  for (size_t i = n; i-- > 0;) {
    if (next == end) return kRansNoRoom;
    *state = EncodeStep(*state, table.frequency_start[codes[i]], &next);
  }
  return static_cast<size_t>(next - words) / 2;
}

size_t RansEncodeRows(const uint8_t* codes, size_t rows, const RansEncoderTable& table,
                      uint32_t* states, uint8_t* words, size_t capacity) {
  uint8_t* next = words;
  const uint8_t* end = words + 2 * capacity;
  for (size_t row = rows; row-- > 0;) {
    if (static_cast<size_t>(end - next) < 2 * kRansLanes) return kRansNoRoom;
    for (size_t lane = kRansLanes; lane-- > 0;) {
      const uint32_t entry = table.frequency_start[codes[row * kRansLanes + lane]];
      states[lane] = EncodeStep(states[lane], entry, &next);
    }
  }
  return static_cast<size_t>(next - words) / 2;
}

size_t RansDecodeOne(const uint8_t* words, size_t word_count, const RansDecoderTable& table,
                     uint32_t* state, uint8_t* codes, size_t n) {
  const uint8_t* next = words;
  const uint8_t* end = words + 2 * word_count;
  for (size_t i = 0; i < n; ++i) {
    if (!DecodeRowChecked(&next, end, table, state, 1, codes + i)) return kRansNoRoom;
  }
  return static_cast<size_t>(next - words) / 2;
}

size_t RansDecodeRows(const uint8_t* words, size_t word_count, const RansDecoderTable& table,
                      uint32_t* states, uint8_t* codes, size_t rows) {
  const uint8_t* next = words;
  const uint8_t* end = words + 2 * word_count;
  for (size_t row = 0; row < rows; ++row) {
    if (!DecodeRowChecked(&next, end, table, states, kRansLanes, codes + row * kRansLanes)) {
      return kRansNoRoom;
    }
  }
  return static_cast<size_t>(next - words) / 2;
}

}  // namespace elastiquant
