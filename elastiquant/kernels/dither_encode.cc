#include <algorithm>
#include <cstring>

#include "elastiquant/kernels/dither_kernels.h"
#include "elastiquant/kernels/dither_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/dither_encode.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elastiquant/kernels/dither_rows-inl.h"
#include "elastiquant/kernels/rans_encode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
bool EncodeFullBlock(const int32_t* indices, const DitherModel& model, int id,
                     DitherWriter* writer) {
  const DitherShape full{kDitherBlock / kDitherRow, 0xFFFF};
  return scalar::EncodeDitherSymbols(indices, full, model, id, writer);
}
void FullPlane(const int32_t* indices, size_t p, uint8_t* plane) {
  for (size_t place = 0; place < kDitherBlock; ++place) {
    const uint32_t bit = static_cast<uint32_t>(indices[DitherTurn(place)]) >> p & 1;
    plane[place / 8] = static_cast<uint8_t>(plane[place / 8] | bit << place % 8);
  }
}
#else

#if HWY_TARGET == HWY_AVX3_DL
// table[index] of 32 words, 64 kParts entries.
template <int kParts>
class WordTable {
 public:
  HWY_INLINE explicit WordTable(const uint16_t* table) {
    for (int i = 0; i < 2 * kParts; ++i) half_[i] = _mm512_load_si512(table + 32 * i);
  }
  HWY_INLINE __m512i operator()(__m512i index) const {
    __m512i part[kParts];
    for (int i = 0; i < kParts; ++i) {
      part[i] = _mm512_permutex2var_epi16(half_[2 * i], index, half_[2 * i + 1]);
    }
    if constexpr (kParts > 1) {
      const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
      for (int i = 0; i < kParts; i += 2) {
        part[i] = _mm512_mask_mov_epi16(part[i], bit6, part[i + 1]);
      }
    }
    if constexpr (kParts > 2) {
      const __mmask32 bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
      part[0] = _mm512_mask_mov_epi16(part[0], bit7, part[2]);
    }
    return part[0];
  }

 private:
  __m512i half_[2 * kParts];
};

// Two rows stand in a vector as packing leaves them: four of the first, four of the second,
// and so on. Their lanes go from 15 down to 0.
HWY_INLINE __m512i LaneOfWord() {
  return _mm512_setr_epi32(0x000E000F, 0x000C000D, 0x000E000F, 0x000C000D,  //
                           0x000A000B, 0x00080009, 0x000A000B, 0x00080009,  //
                           0x00060007, 0x00040005, 0x00060007, 0x00040005,  //
                           0x00020003, 0x00000001, 0x00020003, 0x00000001);
}
// Permutes the low words of two vectors of 32-bit lanes to one vector.
HWY_INLINE __m512i LowWordsOfTwo() {
  const hn::Full512<uint16_t> d;
  return hn::ShiftLeft<1>(hn::Iota(d, 0)).raw;
}

// floor(x / f) for x < 2^20 f, or one less: rounding is always down.
HWY_INLINE __m512i QuotientOrLess(__m512i x, __m512i f) {
  constexpr int kDown = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
  return _mm512_cvttps_epi32(
      _mm512_div_round_ps(_mm512_cvt_roundepu32_ps(x, kDown), _mm512_cvtepi32_ps(f), kDown));
}

// The states after a row, x being refilled where they must.
HWY_INLINE __m512i NextStates(__m512i x, __m512i f, __m512i start) {
  const __m512i q = QuotientOrLess(x, f);
  const __m512i rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(q, f));
  const __m512i y =
      _mm512_add_epi32(_mm512_add_epi32(rest, start), _mm512_slli_epi32(q, kRansScaleBits));
  const __mmask16 less = _mm512_cmpge_epu32_mask(rest, f);
  return _mm512_mask_add_epi32(y, less, y, _mm512_sub_epi32(_mm512_set1_epi32(kRansScale), f));
}

// place: what of an entry's place the lane chooses. A symbol is worth 2^kSymbolShift places.
// kStartShift: binary digits of an entry below its start.
template <int kParts, int kSymbolShift, int kStartShift, bool kRaw = false>
HWY_INLINE bool EncodeWith(const int32_t* indices, const uint16_t* table, __m512i place,
                           const DitherClass& c, DitherWriter* writer) {
  const WordTable<kParts> starts(table);
  const __m512i reach = _mm512_set1_epi16(c.reach);
  const __m512i escape = _mm512_set1_epi16(static_cast<int16_t>(2 * c.reach + 1));
  const __m512i next = _mm512_set1_epi16(1 << kSymbolShift);
  const __m512i digits = _mm512_set1_epi16(kRansScale - 1);
  const __m512i zero = _mm512_setzero_si512();
  const __m512i low_words = LowWordsOfTwo();
  const __m128i raw = _mm_cvtsi32_si128(c.raw);
  const size_t lanes = writer->lanes;
  uint8_t* words = writer->words;
  __m512i last = zero;
  HWY_UNROLL(4)
  for (size_t i = 0; i < kDitherBlock; i += 32) {
    __m512i a = _mm512_loadu_si512(indices + i), b = _mm512_loadu_si512(indices + i + 16);
    if constexpr (kRaw) {
      a = _mm512_sra_epi32(a, raw);
      b = _mm512_sra_epi32(b, raw);
    }
    const __m512i shifted = _mm512_add_epi16(_mm512_packs_epi32(a, b), reach);
    const __m512i symbol = _mm512_min_epu16(shifted, escape);
    last = _mm512_max_epu16(last, symbol);
    const __m512i at = _mm512_or_si512(_mm512_slli_epi16(symbol, kSymbolShift), place);
    const __m512i start = _mm512_srli_epi16(starts(at), kStartShift);
    const __m512i end = _mm512_srli_epi16(starts(_mm512_add_epi16(at, next)), kStartShift);
    const __m512i f = _mm512_and_si512(_mm512_sub_epi16(end, start), digits);
    const __m512i fa = _mm512_unpacklo_epi16(f, zero), fb = _mm512_unpackhi_epi16(f, zero);

    uint32_t* const states = writer->states + (i & (lanes - 1));
    __m512i xa = _mm512_load_si512(states), xb = _mm512_load_si512(states + 16);
    const __mmask16 full_a = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(xa, 20), fa);
    const __mmask16 full_b = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(xb, 20), fb);
    const __mmask32 full = _mm512_kunpackw(full_b, full_a);
    const __m512i low = _mm512_permutex2var_epi16(xa, low_words, xb);
    _mm512_storeu_si512(words, _mm512_maskz_compress_epi16(full, low));
    words += 2 * _mm_popcnt_u32(full);
    xa = _mm512_mask_srli_epi32(xa, full_a, xa, 16);
    xb = _mm512_mask_srli_epi32(xb, full_b, xb, 16);
    _mm512_store_si512(states, NextStates(xa, fa, _mm512_unpacklo_epi16(start, zero)));
    _mm512_store_si512(states + 16, NextStates(xb, fb, _mm512_unpackhi_epi16(start, zero)));
  }
  writer->words = words;
  return _mm512_cmpeq_epi16_mask(last, escape) != 0;
}

// The symbols of a block with all coordinates, lanes being a multiple of 32; true if there are
// escapes.
bool EncodeFullBlock(const int32_t* indices, const DitherModel& model, int id,
                     DitherWriter* writer) {
  const DitherClass c = DitherClassOf(id);
  const __m512i lane = LaneOfWord();
  if (id <= kDitherNarrow) {
    const uint16_t* table = model.narrow[id][0];
    if (c.symbols() <= 4) return EncodeWith<1, 4, 4>(indices, table, lane, c, writer);
    if (c.symbols() <= 8) return EncodeWith<2, 4, 4>(indices, table, lane, c, writer);
    return EncodeWith<4, 4, 4>(indices, table, lane, c, writer);
  }
  const __m512i bin = _mm512_slli_epi16(_mm512_srli_epi16(lane, c.bins == 2 ? 3 : 4), 5);
  const uint16_t* table = model.wide[id];
  return c.raw == 0 ? EncodeWith<1, 0, 0>(indices, table, bin, c, writer)
                    : EncodeWith<1, 0, 0, true>(indices, table, bin, c, writer);
}
#else
// Looks up f | start << 16 for all indices of a block; true if one of them is escaped.
HWY_INLINE bool LookUp(const int32_t* indices, const DitherModel& model, int id,
                       uint32_t* entries) {
  const DitherClass c = DitherClassOf(id);
  const scalar::DitherTable table(model, id);
  bool escaped = false;
  for (size_t turn = 0; turn < kDitherBlock; ++turn) {
    const auto shifted = static_cast<uint32_t>((indices[turn] >> c.raw) + c.reach);
    const uint32_t escape = 2u * c.reach + 1;
    escaped |= shifted >= escape;
    const auto symbol = static_cast<int>(std::min(shifted, escape));
    const scalar::DitherInterval in = table.Of(symbol, DitherTurn(turn) % kDitherRow);
    entries[turn] = in.frequency | in.start << 16;
  }
  return escaped;
}
// 2^-22 less than 1 / f, +-2^-23.
HWY_INLINE hn::Vec<DF> Reciprocal(hn::Vec<DF> f) {
  constexpr float kLess = 1.0f - 0x1p-22f;
#if HWY_TARGET <= HWY_AVX3
  // 14 digits, doubled by one step of Newton's method. Their exact value does not matter.
  const __m512 r = _mm512_rcp14_ps(f.raw);
  return hn::Vec<DF>{_mm512_fmadd_ps(r, _mm512_fnmadd_ps(f.raw, r, _mm512_set1_ps(kLess)), r)};
#else
  return hn::Div(hn::Set(DF(), kLess), f);
#endif
}

// The symbols of a block with all coordinates, lanes being a multiple of 32; true if there are
// escapes.
bool EncodeFullBlock(const int32_t* indices, const DitherModel& model, int id,
                     DitherWriter* writer) {
  const D32 d;
  const DI32 di;
  alignas(64) uint32_t entries[kDitherBlock];
  const bool escaped = LookUp(indices, model, id, entries);
  uint8_t* words = writer->words;
  for (size_t turn = 0; turn < kDitherBlock; turn += kEncoderLanes) {
    uint32_t* const states = writer->states + (turn & (writer->lanes - 1));
    const V32 entry = hn::Load(d, entries + turn);
    const auto f = hn::ConvertTo(DF(), hn::BitCast(di, hn::And(entry, hn::Set(d, 0xFFFF))));
    hn::Store(StepEncoder(hn::Load(d, states), entry, Reciprocal(f), &words), d, states);
  }
  writer->words = words;
  return escaped;
}

#endif  // HWY_TARGET == HWY_AVX3_DL

// Bit p of all indices of a block, in order of places; `plane` is 0.
void FullPlane(const int32_t* indices, size_t p, uint8_t* plane) {
  const DI32 di;
  const auto bit = hn::Set(di, 1 << p);
  for (size_t place = 0; place < kDitherBlock; place += kEncoderLanes) {
    const auto turned = hn::LoadU(di, indices + DitherTurn(place + kEncoderLanes - 1));
    uint8_t bits[8];
    hn::StoreMaskBits(di, hn::TestBit(hn::Reverse(di, turned), bit), bits);
    if constexpr (kEncoderLanes >= 8) {
      std::memcpy(plane + place / 8, bits, kEncoderLanes / 8);
    } else {
      plane[place / 8] = static_cast<uint8_t>(plane[place / 8] | bits[0] << place % 8);
    }
  }
}
#endif  // HWY_TARGET == HWY_SCALAR

void EncodeRun(const float* values, const DitherRun& run, LaneKeys keys, DitherScale scale,
               const DitherModel& model, int id, DitherWriter* writer) {
  constexpr DitherShape kFull{kDitherBlock / kDitherRow, 0xFFFF};
  const bool raw = DitherClassOf(id).raw > 0;
  alignas(64) int32_t indices[kDitherBlock];
  for (size_t i = run.count; i-- > 0;) {
    if (run.soon != nullptr) {
      for (size_t at = 0; at < kDitherBlock; at += 16) {
        hwy::Prefetch(run.soon + i * kDitherBlock + at);
      }
    }
    const size_t at = run.blocks[i] * kDitherBlock;
    QuantizeRows(values + at, kFull.rows, keys, run.first + static_cast<uint32_t>(at), scale,
                 indices);
    const bool escaped = EncodeFullBlock(indices, model, id, writer);
    if (escaped || raw) scalar::AppendDitherRest(indices, kFull, id, escaped, writer);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(EncodeFullBlock);
HWY_EXPORT(FullPlane);
HWY_EXPORT(EncodeRun);

namespace {

// Seven bits a byte, the lowest first, with the highest bit set in all but the last; the last
// byte comes first, as a decoder goes backwards.
void AppendEscape(int32_t high, int reach, DitherWriter* writer) {
  const int32_t size = high < 0 ? -high : high;
  uint32_t excess = 2 * static_cast<uint32_t>(size - reach - 1) + (high < 0);
  uint8_t bytes[5];
  size_t count = 0;
  for (; excess >= 128; excess >>= 7) bytes[count++] = static_cast<uint8_t>(excess | 128);
  bytes[count++] = static_cast<uint8_t>(excess);
  while (count > 0) *writer->bytes++ = bytes[--count];
}

void AppendEscapes(const int32_t* indices, DitherShape shape, const DitherClass& c,
                   DitherWriter* writer) {
  for (size_t place = shape.rows * kDitherRow; place-- > 0;) {
    if (!scalar::IsPresent(shape, place / kDitherRow, place % kDitherRow)) continue;
    const int32_t high = indices[DitherTurn(place)] >> c.raw;
    if (high < -c.reach || high > c.reach) AppendEscape(high, c.reach, writer);
  }
}

void AppendPlanes(const int32_t* indices, DitherShape shape, size_t raw, DitherWriter* writer) {
  if (raw == 0) return;
  const size_t bytes = (scalar::CountPresent(shape) + 7) / 8;
  uint8_t places[kDitherBlock];
  const size_t count = shape.full() ? 0 : scalar::ListPresent(shape, places);
  for (size_t p = raw; p-- > 0; writer->bytes += bytes) {
    std::memset(writer->bytes, 0, bytes);
    if (shape.full()) HWY_DYNAMIC_DISPATCH(FullPlane)(indices, p, writer->bytes);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bit = static_cast<uint32_t>(indices[DitherTurn(places[i])]) >> p & 1;
      uint8_t& byte = writer->bytes[i / 8];
      byte = static_cast<uint8_t>(byte | bit << i % 8);
    }
  }
}

}  // namespace

void scalar::AppendDitherRest(const int32_t* indices, DitherShape shape, int id, bool escaped,
                              DitherWriter* writer) {
  const DitherClass c = DitherClassOf(id);
  if (escaped) AppendEscapes(indices, shape, c, writer);
  AppendPlanes(indices, shape, c.raw, writer);
}

void EncodeDitherIndices(const int32_t* indices, DitherShape shape, const DitherModel& model,
                         int id, DitherWriter* writer) {
  const bool escaped = shape.full() && writer->lanes >= 2 * kDitherRow
                           ? HWY_DYNAMIC_DISPATCH(EncodeFullBlock)(indices, model, id, writer)
                           : scalar::EncodeDitherSymbols(indices, shape, model, id, writer);
  scalar::AppendDitherRest(indices, shape, id, escaped, writer);
}

void EncodeDitherRun(const float* values, const DitherRun& run, LaneKeys keys,
                     DitherScale scale, const DitherModel& model, int id,
                     DitherWriter* writer) {
  if (writer->lanes >= 2 * kDitherRow) {
    return HWY_DYNAMIC_DISPATCH(EncodeRun)(values, run, keys, scale, model, id, writer);
  }
  int32_t indices[kDitherBlock];
  for (size_t i = run.count; i-- > 0;) {
    const size_t at = run.blocks[i] * kDitherBlock;
    const uint32_t first = run.first + static_cast<uint32_t>(at);
    DitherQuantize(values + at, kDitherBlock, keys, first, scale, indices);
    EncodeDitherIndices(indices, PlainShape(kDitherBlock), model, id, writer);
  }
}

}  // namespace elastiquant
#endif  // HWY_ONCE
