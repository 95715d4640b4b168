#include <algorithm>
#include <cstring>

#include "elastiquant/kernels/dither/dither_few_lanes.h"
#include "elastiquant/kernels/dither/dither_kernels.h"
#include "elastiquant/kernels/dither/dither_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/dither/dither_decode.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elastiquant/kernels/dither/dither_rows-inl.h"
#include "elastiquant/kernels/rans/rans_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
struct ToIndices {
  int32_t* indices;
};
struct ScalarSearch {
  const DitherModel& model;
  int id;
};
template <class Use>
bool WithSearch(const DitherModel& model, int id, const Use& use) {
  return use(ScalarSearch{model, id});
}
bool DecodeBy(DitherReader* reader, const ScalarSearch& search, int, const ToIndices& put) {
  bool escaped = false;
  const DitherShape full{kDitherBlock / kDitherRow, 0xFFFF};
  if (!scalar::DecodeDitherSymbols(reader, full, search.model, search.id, put.indices,
                                   &escaped)) {
    reader->words = reader->bytes + 1;  // as vectors leave them, which read on
  }
  return escaped;
}
#else

// What a search finds for a vector of states.
struct Found {
  V16 symbol, offset, frequency;  // offset: of the slot from the symbol's start
};

HWY_INLINE V16 Digits(V16 x) { return hn::And(x, hn::Set(D16(), kRansScale - 1)); }

// Searches the starts of up to 16 symbols that each lane of a row has of its own. Of the
// distances from all starts to the slot, as unsigned numbers, the least is that from the
// slot's own symbol, since starts behind it wrap around; for the same reason the largest is
// that from the next one.
template <int kSymbols>
struct NarrowSearch {
  const uint16_t* rows;  // [symbol][j]: start << 4 | symbol

  static HWY_INLINE V16 Row(const uint16_t* row, size_t v) {
    const D16 d;
#if HWY_TARGET <= HWY_AVX3
    (void)v;
    const __m256i once = _mm256_load_si256(reinterpret_cast<const __m256i*>(row));
    return V16{_mm512_broadcast_i64x4(once)};
#else
    return hn::Load(d, row + v * kDecoderLanes % kDitherRow);
#endif
  }

  template <size_t kGroup>
  HWY_INLINE void operator()(const V16 (&x)[kGroup], Found (&found)[kGroup]) const {
    const D16 d;
    const V16 fifteen = hn::Set(d, 15);
    V16 key[kGroup], least[kGroup], most[kGroup];
    for (size_t v = 0; v < kGroup; ++v) {
      key[v] = hn::Or(hn::ShiftLeft<4>(x[v]), fifteen);
    }
    // Four at a time, lest the search be as slow as a chain of 16 steps.
    HWY_UNROLL(4)
    for (size_t s = 0; s < kSymbols; s += 4) {
      for (size_t v = 0; v < kGroup; ++v) {
        const auto distance = [&](size_t i) HWY_ATTR {
          return i == 0 ? key[v]  // symbol 0 starts at 0
                        : hn::Sub(key[v], Row(rows + i * kDitherRow, v));
        };
        const V16 a = distance(s), b = distance(s + 1);
        V16 low = hn::Min(a, b), high = hn::Max(a, b);
        if (s + 2 < kSymbols) {
          const V16 c = distance(s + 2), e = distance(s + 3);
          low = hn::Min(low, hn::Min(c, e));
          high = hn::Max(high, hn::Max(c, e));
        }
        least[v] = s == 0 ? low : hn::Min(least[v], low);
        most[v] = s == 0 ? high : hn::Max(most[v], high);
      }
    }
    for (size_t v = 0; v < kGroup; ++v) {
      found[v].symbol = hn::AndNot(least[v], fifteen);  // 15 - (15 - symbol)
      found[v].offset = hn::ShiftRight<4>(least[v]);
      found[v].frequency = Digits(hn::Sub(found[v].offset, hn::ShiftRight<4>(most[v])));
    }
  }
};
// Searches 64 starts that all lanes share, or half the lanes 32.
template <int kBins>
struct WideSearch {
  static constexpr size_t kSymbols = 64 / kBins;
  const uint16_t* starts;  // [bin][symbol]

#if HWY_TARGET <= HWY_AVX3
  template <size_t kGroup>
  HWY_INLINE void operator()(const V16 (&x)[kGroup], Found (&found)[kGroup]) const {
    const __m512i low = _mm512_load_si512(starts), high = _mm512_load_si512(starts + 32);
    const auto start_of = [&](__m512i i)
                              HWY_ATTR { return _mm512_permutex2var_epi16(low, i, high); };
    // The upper half of the lanes of each row has bin 1.
    const __m512i first = kBins == 1
                              ? _mm512_setzero_si512()
                              : _mm512_maskz_mov_epi16(0xFF00FF00u, _mm512_set1_epi16(32));
    __m512i slot[kGroup], at[kGroup];
    for (size_t v = 0; v < kGroup; ++v) {
      slot[v] = Digits(x[v]).raw;
      at[v] = first;
    }
    HWY_UNROLL(6)
    for (int16_t width = kSymbols / 2; width > 0; width = static_cast<int16_t>(width / 2)) {
      const __m512i step = _mm512_set1_epi16(width);
      for (size_t v = 0; v < kGroup; ++v) {
        const __m512i start = start_of(_mm512_add_epi16(at[v], step));
        const __mmask32 reached = _mm512_cmple_epu16_mask(start, slot[v]);
        at[v] = _mm512_mask_add_epi16(at[v], reached, at[v], step);
      }
    }
    for (size_t v = 0; v < kGroup; ++v) {
      const __m512i start = start_of(at[v]);
      const __m512i next = start_of(_mm512_add_epi16(at[v], _mm512_set1_epi16(1)));
      found[v].symbol = V16{_mm512_sub_epi16(at[v], first)};
      found[v].offset = V16{_mm512_sub_epi16(slot[v], start)};
      found[v].frequency = Digits(V16{_mm512_sub_epi16(next, start)});
    }
  }
#else
  template <size_t kGroup>
  HWY_INLINE void operator()(const V16 (&x)[kGroup], Found (&found)[kGroup]) const {
    const D16 d;
    V16 slot[kGroup], least[kGroup], most[kGroup], passed[kGroup];
    for (size_t v = 0; v < kGroup; ++v) {
      slot[v] = least[v] = most[v] = Digits(x[v]);
      passed[v] = hn::Zero(d);
    }
    alignas(32) uint16_t row[kDitherRow];
    for (size_t s = 1; s < kSymbols; ++s) {
      std::fill_n(row, kDitherRow / 2, starts[s]);
      std::fill_n(row + kDitherRow / 2, kDitherRow / 2, starts[(kBins - 1) * kSymbols + s]);
      for (size_t v = 0; v < kGroup; ++v) {
        const V16 start = hn::Load(d, row + v * kDecoderLanes % kDitherRow);
        const V16 distance = hn::Sub(slot[v], start);
        least[v] = hn::Min(least[v], distance);
        most[v] = hn::Max(most[v], distance);
        passed[v] = hn::Sub(passed[v], hn::VecFromMask(d, hn::Not(hn::Lt(slot[v], start))));
      }
    }
    for (size_t v = 0; v < kGroup; ++v) {
      found[v].symbol = passed[v];
      found[v].offset = least[v];
      found[v].frequency = Digits(hn::Sub(least[v], most[v]));
    }
  }
#endif
};

// Puts the symbols of places from `place` on, less the reach, as integers.
struct ToIndices {
  int32_t* indices;
  HWY_INLINE void operator()(size_t place, V16 symbols, int reach) const {
    const DI16 d;
    const hn::RepartitionToWide<DI16> wide;
    const auto index =
        hn::Sub(hn::BitCast(d, symbols), hn::Set(d, static_cast<int16_t>(reach)));
    hn::StoreU(hn::PromoteTo(wide, hn::LowerHalf(index)), wide, indices + place);
    hn::StoreU(hn::PromoteTo(wide, hn::UpperHalf(hn::Half<DI16>(), index)), wide,
               indices + place + kDecoderLanes / 2);
  }
};

// Decodes a block, kGroup vectors at a time, which have states of their own; true if there are
// escapes.
template <size_t kGroup, class Search, class Put>
HWY_INLINE bool DecodeWith(DitherReader* reader, const Search& search, int reach,
                           const Put& put) {
  const D16 d;
  const uint8_t* words = reader->words;
  V16 last = hn::Zero(d);
  HWY_UNROLL(1)
  for (size_t place = 0; place < kDitherBlock; place += kGroup * kDecoderLanes) {
    const size_t s = place & (reader->lanes - 1);
    V16 low[kGroup], high[kGroup];
    for (size_t v = 0; v < kGroup; ++v) {
      low[v] = hn::Load(d, reader->low + s + v * kDecoderLanes);
      high[v] = hn::Load(d, reader->high + s + v * kDecoderLanes);
    }
    Found found[kGroup];
    search(low, found);
    for (size_t v = 0; v < kGroup; ++v) {
      StepDecoder(found[v].frequency, found[v].offset, &low[v], &high[v], &words);
      last = hn::Max(last, found[v].symbol);
      put(place + v * kDecoderLanes, found[v].symbol, reach);
      hn::Store(low[v], d, reader->low + s + v * kDecoderLanes);
      hn::Store(high[v], d, reader->high + s + v * kDecoderLanes);
    }
  }
  reader->words = words;
  const V16 escape = hn::Set(d, static_cast<uint16_t>(2 * reach + 1));
  return !hn::AllFalse(d, hn::Eq(last, escape));
}

// Not inlined: runs and single blocks share it.
template <class Search, class Put>
HWY_NOINLINE bool DecodeBy(DitherReader* reader, const Search& search, int reach,
                           const Put& put) {
  constexpr size_t kMany = HWY_MIN(4, kMaxDitherLanes / kDecoderLanes);
  constexpr size_t kFew = HWY_MIN(4, 32 / kDecoderLanes);
  if (reader->lanes >= kMany * kDecoderLanes) {
    return DecodeWith<kMany>(reader, search, reach, put);
  }
  return DecodeWith<kFew>(reader, search, reach, put);
}

// use(the search that a class wants).
template <class Use>
HWY_INLINE bool WithSearch(const DitherModel& model, int id, const Use& use) {
  const DitherClass c = DitherClassOf(id);
  if (id <= kDitherNarrow) {
    const uint16_t* rows = model.narrow[id][0];
    if (c.symbols() <= 4) return use(NarrowSearch<4>{rows});
    if (c.symbols() <= 6) return use(NarrowSearch<6>{rows});
    if (c.symbols() <= 8) return use(NarrowSearch<8>{rows});
    if (c.symbols() <= 12) return use(NarrowSearch<12>{rows});
    return use(NarrowSearch<16>{rows});
  }
  const uint16_t* starts = model.wide[id];
  return c.bins == 2 ? use(WideSearch<2>{starts}) : use(WideSearch<1>{starts});
}

#if HWY_TARGET == HWY_AVX3_DL
// Puts them as DequantizeBytes wants them.
struct ToBytes {
  uint8_t* bytes;
  HWY_INLINE void operator()(size_t place, V16 symbols, int reach) const {
    const auto bias = hn::Set(D16(), static_cast<uint16_t>(kByteBias - reach));
    _mm256_store_si256(reinterpret_cast<__m256i*>(bytes + place),
                       _mm512_cvtepi16_epi8(hn::Add(symbols, bias).raw));
  }
};

HWY_INLINE void IndicesOfBytes(const uint8_t* bytes, int32_t* indices) {
  for (size_t p = 0; p < kDitherBlock; ++p) {
    indices[p] = static_cast<int8_t>(bytes[p]) - kByteBias;
  }
}
#endif
#endif  // HWY_TARGET == HWY_SCALAR

// Puts a plane's bit below those of all indices of a block.
void AddFullPlane(const uint8_t* plane, int32_t* indices) {
  const hn::CappedTag<int32_t, 16> d;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(hn::CappedTag<int32_t, 16>()) >= 8) {
    for (size_t i = 0; i < kDitherBlock; i += hn::Lanes(d)) {
      uint8_t bits[8] = {};  // as many as LoadMaskBits may read
      std::memcpy(bits, plane + i / 8, hn::Lanes(d) / 8);
      const auto bit = hn::IfThenElseZero(hn::LoadMaskBits(d, bits), hn::Set(d, 1));
      hn::StoreU(hn::Or(hn::ShiftLeft<1>(hn::LoadU(d, indices + i)), bit), d, indices + i);
    }
    return;
  }
#endif
  (void)d;
  for (size_t i = 0; i < kDitherBlock; ++i) {
    const uint32_t bit = plane[i / 8] >> i % 8 & 1u;
    indices[i] = static_cast<int32_t>(static_cast<uint32_t>(indices[i]) << 1 | bit);
  }
}

// The symbols of a block with all coordinates, lanes being 32 at least; true if there are
// escapes. Reads no further than kDitherReadAhead.
bool DecodeFullBlock(DitherReader* reader, const DitherModel& model, int id, int32_t* indices) {
  const int reach = DitherClassOf(id).reach;
  return WithSearch(model, id, [&](const auto& search) HWY_ATTR {
#if HWY_TARGET == HWY_AVX3_DL
    alignas(64) uint8_t bytes[kDitherBlock];
    const bool escaped = DecodeBy(reader, search, reach, ToBytes{bytes});
    IndicesOfBytes(bytes, indices);
    return escaped;
#else
    return DecodeBy(reader, search, reach, ToIndices{indices});
#endif
  });
}

// How the values of a run come about.
struct RunValues {
  LaneKeys keys;
  float step;
  DitherSink sink;
  float* values;  // of block 0
};

template <class Search>
HWY_INLINE bool DecodeRunBy(DitherReader* reader, const DitherRun& run, const Search& search,
                            int id, const RunValues& to) {
  constexpr DitherShape kFull{kDitherBlock / kDitherRow, 0xFFFF};
  const DitherClass c = DitherClassOf(id);
  for (size_t i = 0; i < run.count; ++i) {
    if (run.soon != nullptr) {
      for (size_t at = 0; at < kDitherBlock; at += 16) {
        hwy::Prefetch(run.soon + i * kDitherBlock + at);
      }
    }
    if (reader->bytes - reader->words < static_cast<ptrdiff_t>(kDitherReadAhead)) {
      scalar::SecureDitherReadAhead(reader);
    }
    const size_t at = run.blocks[i] * kDitherBlock;
    const uint32_t first = run.first + static_cast<uint32_t>(at);
    alignas(64) int32_t indices[kDitherBlock];
#if HWY_TARGET == HWY_AVX3_DL
    alignas(64) uint8_t bytes[kDitherBlock];
    const bool escaped = DecodeBy(reader, search, c.reach, ToBytes{bytes});
    if (reader->words > reader->bytes) return false;
    if (!escaped && c.raw == 0 && to.step >= kLeastByteStep) {
      DequantizeBytes(bytes, to.keys, first, to.step, to.sink, to.values + at);
      continue;
    }
    IndicesOfBytes(bytes, indices);
#else
    const bool escaped = DecodeBy(reader, search, c.reach, ToIndices{indices});
    if (reader->words > reader->bytes) return false;
#endif
    if ((escaped || c.raw > 0) &&
        !scalar::ReadDitherRest(reader, kFull, id, escaped, indices)) {
      return false;
    }
    DequantizeRows(indices, kFull.rows, to.keys, first, to.step, to.sink, to.values + at);
  }
  return true;
}

bool DecodeRun(DitherReader* reader, const DitherRun& run, LaneKeys keys, float step,
               DitherSink sink, const DitherModel& model, int id, float* values) {
  const RunValues to{keys, step, sink, values};
  return WithSearch(model, id, [&](const auto& search) HWY_ATTR {
    return DecodeRunBy(reader, run, search, id, to);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(DecodeFullBlock);
HWY_EXPORT(AddFullPlane);
HWY_EXPORT(DecodeRun);

namespace {

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

bool ReadEscapes(DitherReader* reader, const DitherClass& c, const uint8_t* places,
                 size_t count, int32_t* indices) {
  for (size_t i = 0; i < count; ++i) {
    int32_t& high = indices[places[i]];
    if (high != c.reach + 1) continue;
    uint32_t excess;
    if (!ReadEscape(reader, &excess)) return false;
    const int32_t size = static_cast<int32_t>(excess >> 1) + c.reach + 1;
    if (static_cast<int64_t>(size) << c.raw > kMaxDitherIndex) return false;
    high = (excess & 1) != 0 ? -size : size;
  }
  return true;
}

void AddPlane(const uint8_t* plane, const uint8_t* places, size_t count, int32_t* indices) {
  for (size_t i = 0; i < count; ++i) {
    int32_t& index = indices[places[i]];
    const uint32_t bit = plane[i / 8] >> i % 8 & 1u;
    index = static_cast<int32_t>(static_cast<uint32_t>(index) << 1 | bit);
  }
}

}  // namespace

void scalar::SecureDitherReadAhead(DitherReader* reader) {
  const auto left = static_cast<size_t>(reader->bytes - reader->words);
  if (left >= kDitherReadAhead) return;
  std::memmove(reader->tail, reader->words, left);
  std::memset(reader->tail + left, 0, kDitherReadAhead);
  reader->words = reader->tail;
  reader->bytes = reader->tail + left;
}

bool scalar::ReadDitherRest(DitherReader* reader, DitherShape shape, int id, bool escaped,
                            int32_t* indices) {
  const DitherClass c = DitherClassOf(id);
  const bool full = shape.full();
  if (!escaped && c.raw == 0) return true;
  const size_t plane_bytes = (scalar::CountPresent(shape) + 7) / 8;
  if (static_cast<size_t>(reader->bytes - reader->words) < c.raw * plane_bytes) return false;
  reader->bytes -= c.raw * plane_bytes;
  const uint8_t* const planes = reader->bytes;  // the highest first
  uint8_t places[kDitherBlock];
  const size_t count = escaped || !full ? scalar::ListPresent(shape, places) : 0;
  if (escaped && !ReadEscapes(reader, c, places, count, indices)) return false;
  for (size_t p = 0; p < c.raw; ++p) {
    const uint8_t* const plane = planes + p * plane_bytes;
    if (full) {
      HWY_DYNAMIC_DISPATCH(AddFullPlane)(plane, indices);
    } else {
      AddPlane(plane, places, count, indices);
    }
  }
  return true;
}

namespace {

// A full block of few lanes, escapes and raw bits included.
bool DecodeFewIndices(DitherReader* reader, const DitherStarts& starts, int id,
                      int32_t* indices) {
  constexpr DitherShape kFull{kDitherBlock / kDitherRow, 0xFFFF};
  scalar::SecureDitherReadAhead(reader);
  const bool escaped = DecodeFewLanes(reader, starts, DitherClassOf(id), indices);
  if (reader->words > reader->bytes) return false;
  return scalar::ReadDitherRest(reader, kFull, id, escaped, indices);
}

}  // namespace

bool DecodeDitherIndices(DitherReader* reader, DitherShape shape, const DitherModel& model,
                         int id, int32_t* indices) {
  if (shape.full() && reader->lanes <= kMostFewLanes) {
    return DecodeFewIndices(reader, DitherStarts(model, id), id, indices);
  }
  bool escaped = false;
  if (shape.full() && reader->lanes >= 32) {
    scalar::SecureDitherReadAhead(reader);
    escaped = HWY_DYNAMIC_DISPATCH(DecodeFullBlock)(reader, model, id, indices);
    if (reader->words > reader->bytes) return false;
  } else if (!scalar::DecodeDitherSymbols(reader, shape, model, id, indices, &escaped)) {
    return false;
  }
  return scalar::ReadDitherRest(reader, shape, id, escaped, indices);
}

bool DecodeDitherRun(DitherReader* reader, const DitherRun& run, LaneKeys keys, float step,
                     DitherSink sink, const DitherModel& model, int id, float* values) {
  if (reader->lanes >= 32) {
    return HWY_DYNAMIC_DISPATCH(DecodeRun)(reader, run, keys, step, sink, model, id, values);
  }
  const DitherStarts starts(model, id);
  int32_t indices[kDitherBlock];
  for (size_t i = 0; i < run.count; ++i) {
    const size_t at = run.blocks[i] * kDitherBlock;
    const uint32_t first = run.first + static_cast<uint32_t>(at);
    if (!DecodeFewIndices(reader, starts, id, indices)) return false;
    DitherDequantize(indices, kDitherBlock, keys, first, step, sink, values + at);
  }
  return true;
}

}  // namespace elastiquant
#endif  // HWY_ONCE
