#include <array>

#include "elastiquant/kernels/dither_kernels.h"
#include "elastiquant/kernels/dither_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/dither_quantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "elastiquant/kernels/lanes-inl.h"
#include "elastiquant/kernels/random-inl.h"

#ifndef ELASTIQUANT_DITHER_ORDERS
#define ELASTIQUANT_DITHER_ORDERS
namespace elastiquant {

// For each of the 128 orders of a row: the lane of each coordinate, and the coordinate of each
// lane, from the last lane to the first.
struct DitherOrders {
  constexpr DitherOrders() {
    for (uint32_t bits = 0; bits < 128; ++bits) {
      const DitherLanes lanes = LanesFromBits(bits);
      for (uint8_t c = 0; c < 16; ++c) {
        const uint32_t j = (lanes.a * c + lanes.b) & 15;
        lane[bits][c] = static_cast<uint8_t>(j);
        turned[bits][15 - j] = c;
      }
    }
  }
  alignas(64) uint8_t lane[128][16] = {};
  alignas(64) uint8_t turned[128][16] = {};
};
inline constexpr DitherOrders kDitherOrders;

}  // namespace elastiquant
#endif  // ELASTIQUANT_DITHER_ORDERS

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
void QuantizeRows(const float*, size_t, LaneKeys, uint32_t, DitherScale, int32_t*) {}
void DequantizeRows(const int32_t*, size_t, LaneKeys, uint32_t, float, DitherSink, float*) {}
void BlockMeans(const float* values, size_t blocks, float* means) {
  for (size_t b = 0; b < blocks; ++b) {
    means[b] = scalar::DitherBlockMean(values + b * kDitherBlock, kDitherBlock);
  }
}
constexpr bool kWholeRows = false;
#else
constexpr bool kWholeRows = true;

// A row in vectors of at most 16 lanes.
using D = hn::CappedTag<float, kDitherRow>;
using DRowU = hn::RebindToUnsigned<D>;
using DRowI = hn::RebindToSigned<D>;
constexpr size_t kLanes = hn::MaxLanes(D());
constexpr size_t kVectors = kDitherRow / kLanes;

// row[order[i]] for the lanes i of vector k.
HWY_INLINE hn::Vec<DRowI> Permuted(const int32_t* row, hn::Vec<DRowI> order) {
  const DRowI di;
  if constexpr (kVectors == 1) {
    return hn::TableLookupLanes(hn::Load(di, row), hn::IndicesFromVec(di, order));
  } else {
    return hn::GatherIndex(di, row, order);
  }
}
HWY_INLINE hn::Vec<DRowI> OrderPart(const uint8_t* order, size_t k) {
  const DRowI di;
  const hn::Rebind<uint8_t, DRowI> d8;
  return hn::PromoteTo(di, hn::LoadU(d8, order + k * kLanes));
}

// Both take the random bits of a row; U = j 2^20 + the upper 20 bits as floats in [0, 1), in
// order of coordinates.
HWY_INLINE hn::Vec<D> DitherOf(hn::Vec<DRowI> lane, hn::Vec<DRowU> bits) {
  const DRowI di;
  const auto u = hn::Or(hn::ShiftLeft<20>(lane), hn::BitCast(di, hn::ShiftRight<12>(bits)));
  return hn::Mul(hn::ConvertTo(D(), u), hn::Set(D(), 0x1p-24f));
}

void QuantizeRows(const float* values, size_t rows, LaneKeys keys, uint32_t first,
                  DitherScale scale, int32_t* indices) {
  const D d;
  const DRowI di;
  RandomVectors<DRowU> random(DRowU(), {keys, first});
  const auto pre = hn::Set(d, scale.pre), mul = hn::Set(d, scale.mul);
  for (size_t row = 0; row < rows; ++row) {
    hn::Vec<DRowU> bits[kVectors];
    random.Next(bits);
    const uint32_t order = hn::GetLane(bits[0]) & 127;
    alignas(64) int32_t in_order[kDitherRow];
    for (size_t k = 0; k < kVectors; ++k) {
      const auto v = hn::LoadU(d, values + row * kDitherRow + k * kLanes);
      const auto dither = DitherOf(OrderPart(kDitherOrders.lane[order], k), bits[k]);
      const auto z = hn::Add(hn::Mul(hn::Mul(v, pre), mul), dither);
#if HWY_TARGET <= HWY_AVX3
      const hn::Vec<DRowI> index{
          _mm512_cvt_roundps_epi32(z.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
#else
      const auto index = hn::ConvertTo(di, hn::Floor(z));
#endif
      if constexpr (kVectors == 1) {
        const auto turned = OrderPart(kDitherOrders.turned[order], 0);
        hn::StoreU(hn::TableLookupLanes(index, hn::IndicesFromVec(di, turned)), di,
                   indices + DitherTurn(row * kDitherRow + 15));
      } else {
        hn::Store(index, di, in_order + k * kLanes);
      }
    }
    for (size_t k = 0; kVectors > 1 && k < kVectors; ++k) {
      const auto turned = OrderPart(kDitherOrders.turned[order], k);
      hn::StoreU(Permuted(in_order, turned), di,
                 indices + DitherTurn(row * kDitherRow + 15) + k * kLanes);
    }
  }
}

template <bool kAdd>
HWY_INLINE void DequantizeRowsTo(const int32_t* indices, size_t rows, LaneKeys keys,
                                 uint32_t first, float step, float weight, float* values) {
  const D d;
  RandomVectors<DRowU> random(DRowU(), {keys, first});
  const auto half = hn::Set(d, 0.5f), scale = hn::Set(d, step), factor = hn::Set(d, weight);
  for (size_t row = 0; row < rows; ++row) {
    hn::Vec<DRowU> bits[kVectors];
    random.Next(bits);
    const uint32_t order = hn::GetLane(bits[0]) & 127;
    for (size_t k = 0; k < kVectors; ++k) {
      const auto lane = OrderPart(kDitherOrders.lane[order], k);
      const auto index = hn::ConvertTo(d, Permuted(indices + row * kDitherRow, lane));
      const auto centred = hn::Sub(DitherOf(lane, bits[k]), half);
      const auto value = hn::Mul(scale, hn::Sub(index, centred));
      float* const at = values + row * kDitherRow + k * kLanes;
      if constexpr (kAdd) {
        hn::StoreU(hn::Add(hn::LoadU(d, at), hn::Mul(factor, value)), d, at);
      } else {
        hn::StoreU(value, d, at);
      }
    }
  }
}
void DequantizeRows(const int32_t* indices, size_t rows, LaneKeys keys, uint32_t first,
                    float step, DitherSink sink, float* values) {
  if (sink.add) {
    DequantizeRowsTo<true>(indices, rows, keys, first, step, sink.weight, values);
  } else {
    DequantizeRowsTo<false>(indices, rows, keys, first, step, 1, values);
  }
}

void BlockMeans(const float* values, size_t blocks, float* means) {
  const D d;
  for (size_t b = 0; b < blocks; ++b) {
    const float* v = values + b * kDitherBlock;
    alignas(64) float columns[kDitherRow];
    for (size_t k = 0; k < kVectors; ++k) {
      auto sum = hn::Abs(hn::LoadU(d, v + k * kLanes));
      for (size_t row = 1; row < kDitherBlock / kDitherRow; ++row) {
        sum = hn::Add(sum, hn::Abs(hn::LoadU(d, v + row * kDitherRow + k * kLanes)));
      }
      hn::Store(sum, d, columns + k * kLanes);
    }
    const hn::CappedTag<float, 4> d4;
    static_assert(hn::MaxLanes(hn::CappedTag<float, 4>()) == 4);
    const auto low = hn::Add(hn::Load(d4, columns), hn::Load(d4, columns + 8));
    const auto high = hn::Add(hn::Load(d4, columns + 4), hn::Load(d4, columns + 12));
    const auto four = hn::Add(low, high);
    const auto two = hn::Add(four, hn::Shuffle1032(four));
    const float sum = hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
    const float mean = sum / static_cast<float>(kDitherBlock);
    means[b] = std::isfinite(mean) ? mean : scalar::DitherBlockMean(v, kDitherBlock);
  }
}
#endif  // HWY_TARGET == HWY_SCALAR

bool TakesWholeRows() { return kWholeRows; }

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(QuantizeRows);
HWY_EXPORT(DequantizeRows);
HWY_EXPORT(BlockMeans);
HWY_EXPORT(TakesWholeRows);

DitherShape ShapeOfBlock(LaneKeys keys, uint32_t first, size_t length) {
  const size_t rows = (length + kDitherRow - 1) / kDitherRow;
  if (length % kDitherRow == 0) return {rows, 0xFFFF};
  const size_t last = (rows - 1) * kDitherRow;
  const DitherLanes lanes = LanesOfRow(keys, first + static_cast<uint32_t>(last));
  uint32_t present = 0;
  for (uint32_t c = 0; last + c < length; ++c) present |= 1u << ((lanes.a * c + lanes.b) & 15);
  return {rows, present};
}

DitherScale MakeDitherScale(float step) {
  // The reciprocal must be neither denormal nor infinite.
  const float pre = step < 0x1p-64f ? 0x1p85f : step > 0x1p64f ? 0x1p-64f : 1.0f;
  return {pre, 1.0f / (step * pre)};
}

void DitherQuantize(const float* values, size_t length, LaneKeys keys, uint32_t first,
                    DitherScale scale, int32_t* indices) {
  const size_t rows = HWY_DYNAMIC_DISPATCH(TakesWholeRows)() ? length / kDitherRow : 0;
  HWY_DYNAMIC_DISPATCH(QuantizeRows)(values, rows, keys, first, scale, indices);
  scalar::DitherQuantize(values, rows * kDitherRow, length, keys, first, scale, indices);
}

void DitherDequantize(const int32_t* indices, size_t length, LaneKeys keys, uint32_t first,
                      float step, DitherSink sink, float* values) {
  const size_t rows = HWY_DYNAMIC_DISPATCH(TakesWholeRows)() ? length / kDitherRow : 0;
  HWY_DYNAMIC_DISPATCH(DequantizeRows)(indices, rows, keys, first, step, sink, values);
  scalar::DitherDequantize(indices, rows * kDitherRow, length, keys, first, step, sink, values);
}

void DitherBlockMeans(const float* values, size_t n, float* means) {
  const size_t whole = n / kDitherBlock, rest = n % kDitherBlock;
  HWY_DYNAMIC_DISPATCH(BlockMeans)(values, whole, means);
  if (rest > 0) {
    means[whole] = scalar::DitherBlockMean(values + whole * kDitherBlock, rest);
  }
}

}  // namespace elastiquant
#endif  // HWY_ONCE
