#include <algorithm>
#include <cstring>

#include "elastiquant/kernels/dither_kernels.h"
#include "elastiquant/kernels/dither_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/dither_encode.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

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

// Looks up f | start << 16 for all indices of a block; true if one of them is escaped.
#if HWY_TARGET <= HWY_AVX3
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
  const __m512i four = _mm512_setr_epi32(0x000E000F, 0x000C000D, 0x000E000F, 0x000C000D,  //
                                         0x000A000B, 0x00080009, 0x000A000B, 0x00080009,  //
                                         0x00060007, 0x00040005, 0x00060007, 0x00040005,  //
                                         0x00020003, 0x00000001, 0x00020003, 0x00000001);
  return four;
}

// place: what of an entry's place the lane chooses. A symbol is worth 2^kSymbolShift places.
// kStartShift: binary digits of an entry below its start.
template <int kParts, int kSymbolShift, int kStartShift>
HWY_INLINE bool LookUpWith(const int32_t* indices, const uint16_t* table, __m512i place,
                           const DitherClass& c, uint32_t* entries) {
  const WordTable<kParts> starts(table);
  const __m512i reach = _mm512_set1_epi16(c.reach);
  const __m512i escape = _mm512_set1_epi16(static_cast<int16_t>(2 * c.reach + 1));
  const __m512i next = _mm512_set1_epi16(1 << kSymbolShift);
  const __m512i digits = _mm512_set1_epi16(kRansScale - 1);
  const __m128i raw = _mm_cvtsi32_si128(c.raw);
  __m512i last = _mm512_setzero_si512();
  for (size_t i = 0; i < kDitherBlock; i += 32) {
    const __m512i a = _mm512_sra_epi32(_mm512_loadu_si512(indices + i), raw);
    const __m512i b = _mm512_sra_epi32(_mm512_loadu_si512(indices + i + 16), raw);
    const __m512i shifted = _mm512_add_epi16(_mm512_packs_epi32(a, b), reach);
    const __m512i symbol = _mm512_min_epu16(shifted, escape);
    last = _mm512_max_epu16(last, symbol);
    const __m512i at = _mm512_or_si512(_mm512_slli_epi16(symbol, kSymbolShift), place);
    const __m512i start = _mm512_srli_epi16(starts(at), kStartShift);
    const __m512i end = _mm512_srli_epi16(starts(_mm512_add_epi16(at, next)), kStartShift);
    const __m512i f = _mm512_and_si512(_mm512_sub_epi16(end, start), digits);
    _mm512_store_si512(entries + i, _mm512_unpacklo_epi16(f, start));
    _mm512_store_si512(entries + i + 16, _mm512_unpackhi_epi16(f, start));
  }
  return _mm512_cmpeq_epi16_mask(last, escape) != 0;
}

HWY_INLINE bool LookUp(const int32_t* indices, const DitherModel& model, int id,
                       uint32_t* entries) {
  const DitherClass c = DitherClassOf(id);
  const __m512i lane = LaneOfWord();
  if (id <= kDitherNarrow) {
    const uint16_t* table = model.narrow[id][0];
    if (c.symbols() <= 4) return LookUpWith<1, 4, 4>(indices, table, lane, c, entries);
    if (c.symbols() <= 8) return LookUpWith<2, 4, 4>(indices, table, lane, c, entries);
    return LookUpWith<4, 4, 4>(indices, table, lane, c, entries);
  }
  const __m512i bin = _mm512_slli_epi16(_mm512_srli_epi16(lane, c.bins == 2 ? 3 : 4), 5);
  return LookUpWith<1, 0, 0>(indices, model.wide[id], bin, c, entries);
}
#else
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
#endif

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

// The symbols of a block with all coordinates, lanes being a multiple of 16; true if there are
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

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(EncodeFullBlock);
HWY_EXPORT(FullPlane);

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

void EncodeDitherIndices(const int32_t* indices, DitherShape shape, const DitherModel& model,
                         int id, DitherWriter* writer) {
  const bool escaped = shape.full() && writer->lanes % kDitherRow == 0
                           ? HWY_DYNAMIC_DISPATCH(EncodeFullBlock)(indices, model, id, writer)
                           : scalar::EncodeDitherSymbols(indices, shape, model, id, writer);
  const DitherClass c = DitherClassOf(id);
  if (escaped) AppendEscapes(indices, shape, c, writer);
  AppendPlanes(indices, shape, c.raw, writer);
}

}  // namespace elastiquant
#endif  // HWY_ONCE
