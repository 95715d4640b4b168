// Encodes the symbols of dither blocks with tables of bytes. This file is included once for
// each SIMD target, of which only AVX3_DL has the permutations that it takes.
#if defined(ELASTIQUANT_KERNELS_DITHER_ENCODE_AVX3_DL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELASTIQUANT_KERNELS_DITHER_ENCODE_AVX3_DL_INL_H_
#undef ELASTIQUANT_KERNELS_DITHER_ENCODE_AVX3_DL_INL_H_
#else
#define ELASTIQUANT_KERNELS_DITHER_ENCODE_AVX3_DL_INL_H_
#endif

#include <hwy/highway.h>

#include "elastiquant/kernels/dither/dither_kernels.h"
#include "elastiquant/kernels/rans/rans_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3_DL
// Looks up table[i] for 64 bytes i in a table of kEntries bytes.
template <int kEntries>
class ByteTable {
 public:
  static constexpr int kParts = kEntries / 64;
  HWY_INLINE void Set(int part, __m512i bytes) { part_[part] = bytes; }
  HWY_INLINE __m512i operator()(__m512i i) const {
    if constexpr (kParts == 1) return _mm512_permutexvar_epi8(i, part_[0]);
    const __m512i low = _mm512_permutex2var_epi8(part_[0], i, part_[1]);
    if constexpr (kParts == 2) return low;
    const __m512i high = kParts == 3 ? _mm512_permutexvar_epi8(i, part_[2])
                                     : _mm512_permutex2var_epi8(part_[2], i, part_[kParts - 1]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(i), high);
  }

 private:
  __m512i part_[kParts];
};

// Returns the lane of each byte of four packed rows. Packing leaves them in this order: four
// lanes of each row, those of the last row first, then the next four. An encoder's block has
// place p at 127 - p, so lanes run downwards.
HWY_INLINE __m512i LaneOfByte() {
  return _mm512_set_epi32(0x00010203, 0x00010203, 0x00010203, 0x00010203,  //
                          0x04050607, 0x04050607, 0x04050607, 0x04050607,  //
                          0x08090A0B, 0x08090A0B, 0x08090A0B, 0x08090A0B,  //
                          0x0C0D0E0F, 0x0C0D0E0F, 0x0C0D0E0F, 0x0C0D0E0F);
}

// The starts and frequencies of all symbols in all lanes, as bytes.
template <int kEntries>
struct SymbolTable {
  ByteTable<kEntries> start_low, start_high, low, high;

  // Sets the entries of 64 symbols whose starts are given, with the starts of the symbols
  // behind them as their ends.
  HWY_INLINE void Set(int part, const __m512i (&start)[2], const __m512i (&end)[2]) {
    const hn::Full512<uint8_t> d;
    const __m512i even =
        hn::ShiftLeft<1>(hn::BitCast(hn::Full512<uint16_t>(), hn::Iota(d, 0))).raw;
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi8(1));
    const __m512i digits = _mm512_set1_epi16(kRansScale - 1);
    __m512i f[2];
    for (int i = 0; i < 2; ++i) {
      f[i] = _mm512_and_si512(_mm512_sub_epi16(end[i], start[i]), digits);
    }
    start_low.Set(part, _mm512_permutex2var_epi8(start[0], even, start[1]));
    start_high.Set(part, _mm512_permutex2var_epi8(start[0], odd, start[1]));
    low.Set(part, _mm512_permutex2var_epi8(f[0], even, f[1]));
    high.Set(part, _mm512_permutex2var_epi8(f[0], odd, f[1]));
  }
};

// Makes a table in which entry 16 s + j is that of symbol s in lane j.
template <int kEntries>
HWY_INLINE SymbolTable<kEntries> NarrowTable(const uint16_t* rows) {
  SymbolTable<kEntries> table;
  constexpr int kVectors = kEntries / 32;
  __m512i start[kVectors + 1];
  for (int i = 0; i < kVectors; ++i) {
    start[i] = _mm512_srli_epi16(_mm512_load_si512(rows + 32 * i), 4);
  }
  start[kVectors] = _mm512_setzero_si512();
  for (int i = 0; i < kVectors; i += 2) {
    table.Set(i / 2, {start[i], start[i + 1]},
              {_mm512_alignr_epi64(start[i + 1], start[i], 4),
               _mm512_alignr_epi64(start[i + 2], start[i + 1], 4)});
  }
  return table;
}
// Makes a table in which entry i is that of starts[i].
HWY_INLINE SymbolTable<64> WideTable(const uint16_t* starts) {
  SymbolTable<64> table;
  const hn::Full512<uint16_t> d;
  const __m512i next = hn::Iota(d, 1).raw;
  const __m512i a = _mm512_load_si512(starts), b = _mm512_load_si512(starts + 32);
  table.Set(0, {a, b},
            {_mm512_permutex2var_epi16(a, next, b), _mm512_permutex2var_epi16(b, next, a)});
  return table;
}

// Returns the permutation that gathers the low words of two vectors of 32-bit lanes in one.
HWY_INLINE __m512i LowWordsOfTwo() {
  const hn::Full512<uint16_t> d;
  return hn::ShiftLeft<1>(hn::Iota(d, 0)).raw;
}

// Returns floor(x / f) for x < 2^20 f, or one less, since rounding is always down.
HWY_INLINE __m512i QuotientOrLess(__m512i x, __m512i f) {
  constexpr int kDown = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
  return _mm512_cvttps_epi32(
      _mm512_div_round_ps(_mm512_cvt_roundepu32_ps(x, kDown), _mm512_cvtepi32_ps(f), kDown));
}

// Steps the states of kRows rows, an even number, over symbols of frequencies f that begin at
// `start`, and returns where the words end. Each step is taken for all rows: a processor looks
// ahead too few instructions to overlap chains that stand one after the other.
template <size_t kRows>
HWY_INLINE uint8_t* StepRows(const __m512i* f, const __m512i* start, uint32_t* states,
                             uint8_t* words) {
  __m512i x[kRows], q[kRows];
  __mmask16 full[kRows];
  for (size_t r = 0; r < kRows; ++r) x[r] = _mm512_load_si512(states + 16 * r);
  for (size_t r = 0; r < kRows; ++r) {
    full[r] = _mm512_cmpge_epu32_mask(x[r], _mm512_slli_epi32(f[r], 20));
  }
  for (size_t r = 0; r < kRows; r += 2) {
    const __mmask32 both = _mm512_kunpackw(full[r + 1], full[r]);
    const __m512i low = _mm512_permutex2var_epi16(x[r], LowWordsOfTwo(), x[r + 1]);
    _mm512_storeu_si512(words, _mm512_maskz_compress_epi16(both, low));
    words += 2 * _mm_popcnt_u32(both);
  }
  for (size_t r = 0; r < kRows; ++r) x[r] = _mm512_mask_srli_epi32(x[r], full[r], x[r], 16);
  for (size_t r = 0; r < kRows; ++r) q[r] = QuotientOrLess(x[r], f[r]);
  for (size_t r = 0; r < kRows; ++r) {
    const __m512i rest = _mm512_sub_epi32(x[r], _mm512_mullo_epi32(q[r], f[r]));
    const __m512i y = _mm512_add_epi32(_mm512_add_epi32(rest, start[r]),
                                       _mm512_slli_epi32(q[r], kRansScaleBits));
    const __mmask16 less = _mm512_cmpge_epu32_mask(rest, f[r]);
    const __m512i more = _mm512_sub_epi32(_mm512_set1_epi32(kRansScale), f[r]);
    _mm512_store_si512(states + 16 * r, _mm512_mask_add_epi32(y, less, y, more));
  }
  return words;
}

// Unpacks four rows of 32-bit lanes from their packed low and high bytes.
HWY_INLINE void UnpackRows(__m512i low, __m512i high, __m512i* rows) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i ab = _mm512_unpacklo_epi8(low, high), cd = _mm512_unpackhi_epi8(low, high);
  rows[0] = _mm512_unpacklo_epi16(ab, zero);
  rows[1] = _mm512_unpackhi_epi16(ab, zero);
  rows[2] = _mm512_unpacklo_epi16(cd, zero);
  rows[3] = _mm512_unpackhi_epi16(cd, zero);
}

// Encodes the symbols of full blocks of one class. Returns whether one of them is an escape. A
// symbol is worth 2^kSymbolShift places of the table, and `lane` is what the lane adds.
template <int kEntries, int kSymbolShift>
struct BlockEncoder {
  static constexpr size_t kRows = kDitherBlock / kDitherRow;
  SymbolTable<kEntries> table;
  __m512i lane;
  DitherClass c;

  HWY_INLINE bool operator()(const int32_t* indices, DitherWriter* writer) const {
    __m512i row[kRows];
    for (auto& r : row) {
      r = _mm512_loadu_si512(indices);
      indices += kDitherRow;
    }
    return Rows(row, writer);
  }
  HWY_INLINE bool Rows(const __m512i (&row)[kRows], DitherWriter* writer) const {
    const __m512i reach = _mm512_set1_epi8(static_cast<char>(c.reach));
    const __m512i escape = _mm512_set1_epi8(static_cast<char>(2 * c.reach + 1));
    __m512i f[kRows], start[kRows];
    __m512i last = _mm512_setzero_si512();
    for (size_t r = 0; r < kRows; r += 4) {
      const __m512i packed = Pack(row[r], row[r + 1], row[r + 2], row[r + 3]);
      const __m512i symbol = _mm512_min_epu8(_mm512_add_epi8(packed, reach), escape);
      last = _mm512_max_epu8(last, symbol);
      const __m512i at = _mm512_or_si512(_mm512_slli_epi16(symbol, kSymbolShift), lane);
      UnpackRows(table.low(at), table.high(at), f + r);
      UnpackRows(table.start_low(at), table.start_high(at), start + r);
    }
    const size_t lanes = writer->lanes;
    uint8_t* words = writer->words;
    if (lanes == kMaxDitherLanes) {
      words = StepRows<4>(f, start, writer->states, words);
      words = StepRows<4>(f + 4, start + 4, writer->states + 4 * kDitherRow, words);
    } else {
      for (size_t r = 0; r < kRows; r += 2) {
        uint32_t* const states = writer->states + (r * kDitherRow & (lanes - 1));
        words = StepRows<2>(f + r, start + r, states, words);
      }
    }
    writer->words = words;
    return _mm512_cmpeq_epi8_mask(last, escape) != 0;
  }

 private:
  // Packs indices, less their raw bits, to bytes. Saturation leaves escapes outside the reach.
  HWY_INLINE __m512i Pack(__m512i a, __m512i b, __m512i d, __m512i e) const {
    if (kSymbolShift == 0 && c.raw > 0) {
      const __m128i raw = _mm_cvtsi32_si128(c.raw);
      a = _mm512_sra_epi32(a, raw);
      b = _mm512_sra_epi32(b, raw);
      e = _mm512_sra_epi32(e, raw);
      d = _mm512_sra_epi32(d, raw);
    }
    return _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(d, e));
  }
};

// Returns use(encoder), where `encoder` encodes blocks of class `id`.
template <class Use>
HWY_INLINE bool WithEncoder(const DitherModel& model, int id, const Use& use) {
  const DitherClass c = DitherClassOf(id);
  const __m512i lane = LaneOfByte();
  if (id <= kDitherNarrow) {
    const uint16_t* rows = model.narrow[id][0];
    if (c.symbols() <= 4) return use(BlockEncoder<64, 4>{NarrowTable<64>(rows), lane, c});
    if (c.symbols() <= 8) return use(BlockEncoder<128, 4>{NarrowTable<128>(rows), lane, c});
    if (c.symbols() <= 12) return use(BlockEncoder<192, 4>{NarrowTable<192>(rows), lane, c});
    return use(BlockEncoder<256, 4>{NarrowTable<256>(rows), lane, c});
  }
  const __m512i bin = _mm512_slli_epi16(_mm512_and_si512(lane, _mm512_set1_epi8(8)), 2);
  return use(BlockEncoder<64, 0>{WideTable(model.wide[id]),
                                 c.bins == 2 ? bin : _mm512_setzero_si512(), c});
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
