// Quantises and dequantises rows of the dither codec. This file is included once for each SIMD
// target.
#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/dither/dither_scalar.h"

#ifndef ELASTIQUANT_DITHER_ORDERS
#define ELASTIQUANT_DITHER_ORDERS
namespace elastiquant {

// For each of the 128 orders of a row: the lane of each coordinate, and the coordinate of each
// lane from the last lane to the first. The entries are as wide as those of the vectors that
// they are loaded to, since widening them would take as long as permuting.
struct DitherOrders {
  constexpr DitherOrders() {
    for (uint32_t bits = 0; bits < 128; ++bits) {
      const DitherLanes lanes = LanesFromBits(bits);
      for (uint8_t c = 0; c < 16; ++c) {
        const uint32_t j = (lanes.a * c + lanes.b) & 15;
        lane[bits][c] = static_cast<int32_t>(j);
        turned[bits][15 - j] = c;
      }
    }
  }
  alignas(64) int32_t lane[128][16] = {};
  alignas(64) int32_t turned[128][16] = {};
};
inline constexpr DitherOrders kDitherOrders;

}  // namespace elastiquant
#endif  // ELASTIQUANT_DITHER_ORDERS

#if defined(ELASTIQUANT_KERNELS_DITHER_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELASTIQUANT_KERNELS_DITHER_ROWS_INL_H_
#undef ELASTIQUANT_KERNELS_DITHER_ROWS_INL_H_
#else
#define ELASTIQUANT_KERNELS_DITHER_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include "elastiquant/kernels/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Both functions take `rows` whole rows, from the first row of a block on.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void QuantizeRows(const float* values, size_t rows, LaneKeys keys, uint32_t first,
                             DitherScale scale, int32_t* indices) {
  scalar::DitherQuantize(values, 0, rows * kDitherRow, keys, first, scale, indices);
}
HWY_INLINE void DequantizeRows(const int32_t* indices, size_t rows, LaneKeys keys,
                               uint32_t first, float step, DitherSink sink, float* values) {
  scalar::DitherDequantize(indices, 0, rows * kDitherRow, keys, first, step, sink, values);
}
#else

// A row in vectors of at most 16 lanes.
using DRow = hn::CappedTag<float, kDitherRow>;
using DRowU = hn::RebindToUnsigned<DRow>;
using DRowI = hn::RebindToSigned<DRow>;
constexpr size_t kRowLanes = hn::MaxLanes(DRow());
constexpr size_t kRowVectors = kDitherRow / kRowLanes;

// The number of rows that are worked on at a time, each step for all of them: a processor looks
// ahead too few instructions to overlap the long chains of rows that stand one after the other.
constexpr size_t kRowsAtATime = kRowVectors == 1 ? 8 : HWY_MAX(1, 4 / kRowVectors);

// Returns row[order[i]] for all lanes i.
HWY_INLINE hn::Vec<DRowI> Permuted(const int32_t* row, hn::Vec<DRowI> order) {
  const DRowI di;
  if constexpr (kRowVectors == 1) {
    return hn::TableLookupLanes(hn::LoadU(di, row), hn::IndicesFromVec(di, order));
  } else {
    return hn::GatherIndex(di, row, order);
  }
}

// The random numbers of kRows rows: their orders, lanes, and the dither (j 2^20 + the upper 20
// bits) / 2^24.
template <size_t kRows>
struct RowDither {
  static constexpr size_t kAll = kRows * kRowVectors;

  HWY_INLINE explicit RowDither(RandomVectors<DRowU>& random) {
    const DRowI di;
    hn::Vec<DRowU> bits[kAll];
    random.Next(bits);
    for (size_t r = 0; r < kRows; ++r) order[r] = hn::GetLane(bits[r * kRowVectors]) & 127;
    for (size_t v = 0; v < kAll; ++v) {
      const int32_t* const lanes = kDitherOrders.lane[order[v / kRowVectors]];
      lane[v] = hn::Load(di, lanes + v % kRowVectors * kRowLanes);
#if HWY_TARGET == HWY_AVX3_DL
      const hn::Vec<DRowI> u{_mm512_shldi_epi32(lane[v].raw, bits[v].raw, 20)};
#else
      const auto high = hn::BitCast(di, hn::ShiftRight<12>(bits[v]));
      const auto u = hn::Or(hn::ShiftLeft<20>(lane[v]), high);
#endif
      dither[v] = hn::Mul(hn::ConvertTo(DRow(), u), hn::Set(DRow(), 0x1p-24f));
    }
  }

  uint32_t order[kRows];
  hn::Vec<DRowI> lane[kAll];
  hn::Vec<DRow> dither[kAll];
};

// Sets `turned` to the indices of kRows rows, the lanes of each from the last to the first.
// Without kPre, scale.pre must be 1.
template <size_t kRows, bool kPre = true>
HWY_INLINE void QuantizeTurned(const float* values, RandomVectors<DRowU>& random,
                               DitherScale scale,
                               hn::Vec<DRowI> (&turned)[kRows * kRowVectors]) {
  const DRow d;
  const DRowI di;
  const RowDither<kRows> row(random);
  hn::Vec<DRowI> index[row.kAll];
  for (size_t v = 0; v < row.kAll; ++v) {
    auto scaled = hn::LoadU(d, values + v * kRowLanes);
    if constexpr (kPre) scaled = hn::Mul(scaled, hn::Set(d, scale.pre));
    const auto z = hn::Add(hn::Mul(scaled, hn::Set(d, scale.mul)), row.dither[v]);
#if HWY_TARGET <= HWY_AVX3
    index[v] = hn::Vec<DRowI>{
        _mm512_cvt_roundps_epi32(z.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
#else
    index[v] = hn::ConvertTo(di, hn::Floor(z));
#endif
  }
  if constexpr (kRowVectors == 1) {
    for (size_t v = 0; v < row.kAll; ++v) {
      const auto order = hn::Load(di, kDitherOrders.turned[row.order[v]]);
      turned[v] = hn::TableLookupLanes(index[v], hn::IndicesFromVec(di, order));
    }
  } else {
    alignas(64) int32_t in_order[kRows * kDitherRow];
    for (size_t v = 0; v < row.kAll; ++v) hn::Store(index[v], di, in_order + v * kRowLanes);
    for (size_t v = 0; v < row.kAll; ++v) {
      const size_t r = v / kRowVectors, part = v % kRowVectors * kRowLanes;
      const auto order = hn::Load(di, kDitherOrders.turned[row.order[r]] + part);
      turned[v] = hn::GatherIndex(di, in_order + r * kDitherRow, order);
    }
  }
}

template <size_t kRows>
// Stores the indices of kRows rows in front of `indices`: the first row ends there, and the
// others go before it.
HWY_INLINE void QuantizeSome(const float* values, RandomVectors<DRowU>& random,
                             DitherScale scale, int32_t* indices) {
  hn::Vec<DRowI> turned[kRows * kRowVectors];
  QuantizeTurned<kRows>(values, random, scale, turned);
  for (size_t v = 0; v < kRows * kRowVectors; ++v) {
    hn::StoreU(turned[v], DRowI(),
               indices - (v / kRowVectors + 1) * kDitherRow + v % kRowVectors * kRowLanes);
  }
}

HWY_INLINE void QuantizeRows(const float* values, size_t rows, LaneKeys keys, uint32_t first,
                             DitherScale scale, int32_t* indices) {
  RandomVectors<DRowU> random(DRowU(), {keys, first});
  int32_t* end = indices + kDitherBlock;
  size_t row = 0;
  for (; row + kRowsAtATime <= rows; row += kRowsAtATime) {
    QuantizeSome<kRowsAtATime>(values + row * kDitherRow, random, scale, end);
    end -= kRowsAtATime * kDitherRow;
  }
  for (; row < rows; ++row, end -= kDitherRow) {
    QuantizeSome<1>(values + row * kDitherRow, random, scale, end);
  }
}

template <size_t kRows, bool kAdd>
HWY_INLINE void DequantizeSome(const int32_t* indices, RandomVectors<DRowU>& random, float step,
                               float weight, float* values) {
  const DRow d;
  const RowDither<kRows> row(random);
  for (size_t v = 0; v < row.kAll; ++v) {
    const int32_t* const from = indices + v / kRowVectors * kDitherRow;
    const auto index = hn::ConvertTo(d, Permuted(from, row.lane[v]));
    const auto centred = hn::Sub(row.dither[v], hn::Set(d, 0.5f));
    const auto value = hn::Mul(hn::Set(d, step), hn::Sub(index, centred));
    float* const at = values + v * kRowLanes;
    if constexpr (kAdd) {
      hn::StoreU(hn::Add(hn::LoadU(d, at), hn::Mul(hn::Set(d, weight), value)), d, at);
    } else {
      hn::StoreU(value, d, at);
    }
  }
}

template <bool kAdd>
HWY_INLINE void DequantizeRowsTo(const int32_t* indices, size_t rows, LaneKeys keys,
                                 uint32_t first, float step, float weight, float* values) {
  RandomVectors<DRowU> random(DRowU(), {keys, first});
  size_t at = 0;
  const size_t end = rows * kDitherRow;
  for (; at + kRowsAtATime * kDitherRow <= end; at += kRowsAtATime * kDitherRow) {
    DequantizeSome<kRowsAtATime, kAdd>(indices + at, random, step, weight, values + at);
  }
  for (; at < end; at += kDitherRow) {
    DequantizeSome<1, kAdd>(indices + at, random, step, weight, values + at);
  }
}
HWY_INLINE void DequantizeRows(const int32_t* indices, size_t rows, LaneKeys keys,
                               uint32_t first, float step, DitherSink sink, float* values) {
  if (sink.add) {
    DequantizeRowsTo<true>(indices, rows, keys, first, step, sink.weight, values);
  } else {
    DequantizeRowsTo<false>(indices, rows, keys, first, step, 1, values);
  }
}

#if HWY_TARGET == HWY_AVX3_DL
// Indices are passed as signed bytes, one for each place of a block, to each of which this is
// added. With it they become values without a float for each part: index - (U / 2^24 - 1/2) is
// w / 2^24 with the integer w = index 2^24 + 2^23 - U, which is rounded just as the difference
// of floats is.
constexpr int kByteBias = 9;
// With a smaller step a value may be denormal, and rounded twice.
constexpr float kLeastByteStep = 0x1p-102f;

// For each order of a row and each coordinate, lane << 24 | lane + 0x808088. This is the byte
// shuffle that puts the index above three zeros. Shifted left by 20, it is also the lane's part
// of U plus 2^23 and 2^27, which the bias allows for.
struct DitherByteOrders {
  constexpr DitherByteOrders() {
    for (uint32_t bits = 0; bits < 128; ++bits) {
      const DitherLanes lanes = LanesFromBits(bits);
      for (uint32_t c = 0; c < 16; ++c) {
        const uint32_t j = (lanes.a * c + lanes.b) & 15;
        shuffle[bits][c] = j << 24 | (j + 0x808088);
      }
    }
  }
  alignas(64) uint32_t shuffle[128][16] = {};
};
constexpr DitherByteOrders kDitherByteOrders;

// Does what DequantizeRows does for a block of which index + kByteBias is given.
HWY_INLINE void DequantizeBytes(const uint8_t* bytes, LaneKeys keys, uint32_t first, float step,
                                DitherSink sink, float* values) {
  constexpr size_t kRows = kDitherBlock / kDitherRow;
  RandomVectors<DRowU> random(DRowU(), {keys, first});
  hn::Vec<DRowU> bits[kRows];
  random.Next(bits);
  const __m512 unit = _mm512_set1_ps(step * 0x1p-24f), weight = _mm512_set1_ps(sink.weight);
  __m512 value[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    const uint32_t order = hn::GetLane(bits[r]) & 127;
    const __m512i shuffle = _mm512_load_si512(kDitherByteOrders.shuffle[order]);
    const __m512i row = _mm512_broadcast_i32x4(
        _mm_load_si128(reinterpret_cast<const __m128i*>(bytes + r * kDitherRow)));
    const __m512i w = _mm512_sub_epi32(_mm512_shuffle_epi8(row, shuffle),
                                       _mm512_shldi_epi32(shuffle, bits[r].raw, 20));
    value[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(w), unit);
  }
  for (size_t r = 0; r < kRows; ++r) {
    float* const at = values + r * kDitherRow;
    if (sink.add) {
      value[r] = _mm512_add_ps(_mm512_loadu_ps(at), _mm512_mul_ps(weight, value[r]));
    }
    _mm512_storeu_ps(at, value[r]);
  }
}
#endif

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
