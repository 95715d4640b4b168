#include "elastiquant/kernels/rans/rans_kernels.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/rans/rans_decode.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elastiquant/kernels/rans/rans_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
void FillSlots(uint32_t first, uint32_t count, uint32_t* slots) {
  for (uint32_t i = 0; i < count; ++i) slots[i] = first + (i << 20);
}

size_t DecodeRows(const uint8_t**, const uint8_t*, const RansDecoderTable&, uint32_t*, uint8_t*,
                  size_t, size_t, const float*) {
  return 0;
}
#else

// slots[i] = first + (i << 20); may write up to 16 more.
void FillSlots(uint32_t first, uint32_t count, uint32_t* slots) {
  const hn::CappedTag<uint32_t, 16> d;
  auto v = hn::Add(hn::Set(d, first), hn::ShiftLeft<20>(hn::Iota(d, 0)));
  const auto step = hn::Set(d, static_cast<uint32_t>(hn::Lanes(d)) << 20);
  for (uint32_t i = 0; i < count; i += static_cast<uint32_t>(hn::Lanes(d))) {
    hn::StoreU(v, d, slots + i);
    v = hn::Add(v, step);
  }
}

// Finds the symbol of a slot: of all distances from where a symbol starts to the slot, as
// unsigned numbers, the least is that from its own symbol, since starts behind it wrap around.
template <int kSymbols>
class DecoderSearch {
 public:
  explicit DecoderSearch(const RansDecoderTable& table) {
    alignas(64) uint16_t frequencies[32] = {};
    alignas(16) uint8_t low[16] = {}, high[16] = {};
    for (int i = 0; i < kSymbols; ++i) {
      const int symbol = std::min(i, table.symbols - 1);  // repeating the last does no harm
      const int start = (table.starts[symbol] << 4) - symbol;  // >= 0: no frequency is 0
      starts_[i] = hn::Set(D16(), static_cast<uint16_t>(start));
      frequencies[i] = frequencies[16 + i] = table.frequencies[symbol];
      low[i] = static_cast<uint8_t>(frequencies[i]);
      high[i] = static_cast<uint8_t>(frequencies[i] >> 8);
    }
#if HWY_TARGET <= HWY_AVX3
    frequencies_ = hn::Load(D16(), frequencies);
#else
    low_ = hn::LoadDup128(D8(), low);
    high_ = hn::LoadDup128(D8(), high);
#endif
  }

  // (slot - start) << 4 | symbol of the slots in the low 12 bits of x.
  HWY_INLINE V16 Find(V16 x) const {
    const V16 key = hn::ShiftLeft<4>(x);
    V16 distance[kSymbols];
    for (int i = 0; i < kSymbols; ++i) distance[i] = hn::Sub(key, starts_[i]);
    HWY_UNROLL(4)
    for (int width = kSymbols / 2; width > 0; width /= 2) {
      HWY_UNROLL(8)
      for (int i = 0; i < width; ++i) distance[i] = hn::Min(distance[i], distance[i + width]);
    }
    return distance[0];
  }

  // Of the symbols in the low 4 bits.
  HWY_INLINE V16 Frequencies(V16 found) const {
#if HWY_TARGET <= HWY_AVX3
    // The permutation looks at 5 bits, and so the table stands there twice.
    return V16{_mm512_permutexvar_epi16(found.raw, frequencies_.raw)};
#else
    const D16 d;
    const V16 symbols = hn::And(found, hn::Set(d, 15));
    const auto low_index = hn::BitCast(D8(), hn::Or(symbols, hn::Set(d, 0x8000)));
    const auto high_index =
        hn::BitCast(D8(), hn::Or(hn::ShiftLeft<8>(symbols), hn::Set(d, 0x0080)));
    return hn::BitCast(d, hn::Or(hn::TableLookupBytesOr0(low_, low_index),
                                 hn::TableLookupBytesOr0(high_, high_index)));
#endif
  }

 private:
  using D8 = hn::Repartition<uint8_t, D16>;
  V16 starts_[kSymbols];
#if HWY_TARGET <= HWY_AVX3
  V16 frequencies_ = hn::Zero(D16());
#else
  hn::Vec<D8> low_ = hn::Zero(D8()), high_ = hn::Zero(D8());
#endif
};

// Steps the states and returns the indices of the symbols.
template <class Search>
HWY_INLINE V16 DecodeVector(V16* low, V16* high, const Search& search, const uint8_t** next) {
  const D16 d;
  const V16 found = search.Find(*low);
  const V16 f = search.Frequencies(found);
  StepDecoder(f, hn::ShiftRight<4>(found), low, high, next);
  return hn::And(found, hn::Set(d, 15));
}

template <int kSymbols, size_t kRowLanes>
size_t DecodeRowsWith(const uint8_t** next, const uint8_t* end, const RansDecoderTable& table,
                      uint32_t* states, uint8_t* codes, size_t rows, const float* soon) {
  const D16 d;
  const hn::Rebind<uint8_t, D16> d8;
  const DecoderSearch<kSymbols> search(table);
  const hn::FixedTag<uint8_t, HWY_MAX(kDecoderLanes, 16)> d_codes;
  const auto code_of = hn::LoadDup128(d_codes, table.codes);
  constexpr size_t kVectors = kRowLanes / kDecoderLanes;
  V16 low[kVectors], high[kVectors];
  alignas(64) uint16_t halves[2][kRowLanes];
  for (size_t lane = 0; lane < kRowLanes; ++lane) {
    halves[0][lane] = static_cast<uint16_t>(states[lane]);
    halves[1][lane] = static_cast<uint16_t>(states[lane] >> 16);
  }
  for (size_t v = 0; v < kVectors; ++v) {
    low[v] = hn::Load(d, halves[0] + v * kDecoderLanes);
    high[v] = hn::Load(d, halves[1] + v * kDecoderLanes);
  }
  size_t row = 0;
  const auto decode_row = [&](const uint8_t** words) HWY_ATTR {
    if (soon != nullptr) {
      for (size_t i = 0; i < kRowLanes; i += 16) hwy::Prefetch(soon + row * kRowLanes + i);
    }
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      const V16 symbols = DecodeVector(&low[v], &high[v], search, words);
      const auto out = hn::TableLookupBytes(code_of, hn::TruncateTo(d8, symbols));
      hn::StoreU(out, d8, codes + row * kRowLanes + v * kDecoderLanes);
    }
    ++row;
  };
  // A row uses at most kRowBytes of words, and no load reaches beyond as many.
  constexpr size_t kRowBytes = 2 * kRowLanes;
  const uint8_t* words = *next;
  while (row < rows && static_cast<size_t>(end - words) >= kRowBytes) decode_row(&words);
  // The last rows read from a copy of the last words, with room for all loads.
  const auto left = static_cast<size_t>(end - words);
  uint8_t last_words[2 * kRowBytes] = {};
  std::memcpy(last_words, words, std::min(left, kRowBytes));
  const uint8_t* last = last_words;
  while (row < rows) {
    decode_row(&last);
    if (static_cast<size_t>(last - last_words) > left) return kRansNoRoom;
  }
  for (size_t v = 0; v < kVectors; ++v) {
    hn::Store(low[v], d, halves[0] + v * kDecoderLanes);
    hn::Store(high[v], d, halves[1] + v * kDecoderLanes);
  }
  for (size_t lane = 0; lane < kRowLanes; ++lane) {
    states[lane] = static_cast<uint32_t>(halves[1][lane]) << 16 | halves[0][lane];
  }
  *next = words + (last - last_words);
  return row;
}

template <size_t kRowLanes>
size_t DecodeRowsOf(const uint8_t** next, const uint8_t* end, const RansDecoderTable& table,
                    uint32_t* states, uint8_t* codes, size_t rows, const float* soon) {
  if (table.symbols <= 4)
    return DecodeRowsWith<4, kRowLanes>(next, end, table, states, codes, rows, soon);
  if (table.symbols <= 8)
    return DecodeRowsWith<8, kRowLanes>(next, end, table, states, codes, rows, soon);
  return DecodeRowsWith<16, kRowLanes>(next, end, table, states, codes, rows, soon);
}

// Decodes rows from the first on; returns how many, or kRansNoRoom if words are too few.
size_t DecodeRows(const uint8_t** next, const uint8_t* end, const RansDecoderTable& table,
                  uint32_t* states, uint8_t* codes, size_t rows, size_t lanes,
                  const float* soon) {
  if (table.symbols == 0) return 0;
  return lanes == 32 ? DecodeRowsOf<32>(next, end, table, states, codes, rows, soon)
                     : DecodeRowsOf<64>(next, end, table, states, codes, rows, soon);
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(FillSlots);
HWY_EXPORT(DecodeRows);

namespace {

// The state after one step of the decoder, before a word may be appended to it.
inline uint32_t DecodeStep(uint32_t x, uint32_t slot) {
  return (slot >> 8 & 0xFFF) * (x >> kRansScaleBits) + (slot >> 20);
}

// Decodes `lanes` codes, the next word being that at *words; false if there are too few.
bool DecodeRow(const uint8_t** words, const uint8_t* end, const RansDecoderTable& table,
               uint32_t* states, size_t lanes, uint8_t* codes) {
  for (size_t lane = 0; lane < lanes; ++lane) {
    const uint32_t slot = table.slots[states[lane] & (kRansScale - 1)];
    codes[lane] = static_cast<uint8_t>(slot);
    uint32_t x = DecodeStep(states[lane], slot);
    const uint32_t takes = x < kRansLow ? 1 : 0;
    uint16_t word = 0;
    if (*words != end) {
      std::memcpy(&word, *words, 2);
    } else if (takes != 0) {
      return false;
    }
    // As in EncodeStep, no branch on what cannot be predicted.
    *words += 2 * takes;
    states[lane] = x << 16 * takes | (word & (0u - takes));
  }
  return true;
}

}  // namespace

void MakeRansDecoderTable(const RansFrequencies& frequencies, RansDecoderTable* table) {
  uint32_t start = 0;
  int symbols = 0;
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t f = frequencies.of[code];
    if (f == 0) continue;
    HWY_DYNAMIC_DISPATCH(FillSlots)(code | f << 8, f, table->slots + start);
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

size_t RansDecodeOne(const uint8_t* words, size_t word_count, const RansDecoderTable& table,
                     uint32_t* state, uint8_t* codes, size_t n) {
  const uint8_t* next = words;
  const uint8_t* end = words + 2 * word_count;
  uint32_t x = *state;
  for (size_t i = 0; i < n; ++i) {
    if (!DecodeRow(&next, end, table, &x, 1, codes + i)) return kRansNoRoom;
  }
  *state = x;
  return static_cast<size_t>(next - words) / 2;
}

size_t RansDecodeRows(const uint8_t* words, size_t word_count, const RansDecoderTable& table,
                      uint32_t* states, uint8_t* codes, size_t rows, size_t lanes,
                      const float* soon) {
  const uint8_t* next = words;
  const uint8_t* end = words + 2 * word_count;
  size_t row =
      HWY_DYNAMIC_DISPATCH(DecodeRows)(&next, end, table, states, codes, rows, lanes, soon);
  if (row == kRansNoRoom) return kRansNoRoom;
  for (; row < rows; ++row) {
    if (!DecodeRow(&next, end, table, states, lanes, codes + row * lanes)) {
      return kRansNoRoom;
    }
  }
  return static_cast<size_t>(next - words) / 2;
}

}  // namespace elastiquant
#endif  // HWY_ONCE
