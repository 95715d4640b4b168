#include "elastiquant/kernels/dither/dither_kernels.h"
#include "elastiquant/kernels/dither/dither_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/dither/dither_quantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elastiquant/kernels/dither/dither_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
void BlockMeans(const float* values, size_t blocks, float* means) {
  for (size_t b = 0; b < blocks; ++b) {
    means[b] = scalar::DitherBlockMean(values + b * kDitherBlock, kDitherBlock);
  }
}
#else
void BlockMeans(const float* values, size_t blocks, float* means) {
  constexpr size_t kFetchAhead = 32;  // blocks
  const DRow d;
  for (size_t b = 0; b < blocks; ++b) {
    const float* v = values + b * kDitherBlock;
    // Farther than processors fetch by themselves, which stop at the end of a page.
    if (b + kFetchAhead < blocks) {
      const float* soon = v + kFetchAhead * kDitherBlock;
      for (size_t at = 0; at < kDitherBlock; at += 16) hwy::Prefetch(soon + at);
    }
    alignas(64) float columns[kDitherRow];
    for (size_t k = 0; k < kRowVectors; ++k) {
      auto sum = hn::Abs(hn::LoadU(d, v + k * kRowLanes));
      for (size_t row = 1; row < kDitherBlock / kDitherRow; ++row) {
        sum = hn::Add(sum, hn::Abs(hn::LoadU(d, v + row * kDitherRow + k * kRowLanes)));
      }
      hn::Store(sum, d, columns + k * kRowLanes);
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

void Classes(const float* means, size_t n, DitherScale scale, float shift, uint8_t* classes) {
  size_t b = 0;
#if HWY_TARGET != HWY_SCALAR
  const DRow d;
  const DRowI di;
  const hn::Rebind<uint8_t, DRowI> d8;
  const auto quarter = hn::Set(di, std::bit_cast<int32_t>(1.1892071f) & 0x7FFFFF);
  const auto three = hn::Set(di, std::bit_cast<int32_t>(1.6817929f) & 0x7FFFFF);
  for (; b + kRowLanes <= n; b += kRowLanes) {
    const auto mean = hn::LoadU(d, means + b);
    const auto steps = hn::Mul(hn::Mul(mean, hn::Set(d, scale.pre)), hn::Set(d, scale.mul));
    const auto bits = hn::BitCast(di, hn::Mul(steps, hn::Set(d, shift)));
    const auto mantissa = hn::And(bits, hn::Set(di, 0x7FFFFF));
    // Masks are -1.
    const auto below = hn::Add(hn::VecFromMask(di, hn::Lt(mantissa, quarter)),
                               hn::VecFromMask(di, hn::Lt(mantissa, three)));
    const auto octaves = hn::ShiftLeft<1>(hn::ShiftRight<23>(bits));
    const auto id =
        hn::Add(hn::Add(octaves, below), hn::Set(di, kDitherUnitClass + 2 - 2 * 127));
    const auto within = hn::Min(hn::Max(id, hn::Set(di, 1)), hn::Set(di, kDitherClasses - 1));
    const auto zero = hn::RebindMask(di, hn::Eq(mean, hn::Zero(d)));
    hn::StoreU(hn::DemoteTo(d8, hn::IfThenZeroElse(zero, within)), d8, classes + b);
  }
#endif
  for (; b < n; ++b) classes[b] = scalar::DitherClassFor(means[b], scale, shift);
}

void Quantize(const float* values, size_t rows, LaneKeys keys, uint32_t first,
              DitherScale scale, int32_t* indices) {
  QuantizeRows(values, rows, keys, first, scale, indices);
}
void Dequantize(const int32_t* indices, size_t rows, LaneKeys keys, uint32_t first, float step,
                DitherSink sink, float* values) {
  DequantizeRows(indices, rows, keys, first, step, sink, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(Quantize);
HWY_EXPORT(Dequantize);
HWY_EXPORT(BlockMeans);
HWY_EXPORT(Classes);

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
  const size_t rows = length / kDitherRow;
  HWY_DYNAMIC_DISPATCH(Quantize)(values, rows, keys, first, scale, indices);
  scalar::DitherQuantize(values, rows * kDitherRow, length, keys, first, scale, indices);
}

void DitherDequantize(const int32_t* indices, size_t length, LaneKeys keys, uint32_t first,
                      float step, DitherSink sink, float* values) {
  const size_t rows = length / kDitherRow;
  HWY_DYNAMIC_DISPATCH(Dequantize)(indices, rows, keys, first, step, sink, values);
  scalar::DitherDequantize(indices, rows * kDitherRow, length, keys, first, step, sink, values);
}

void DitherClasses(const float* means, size_t n, DitherScale scale, float shift,
                   uint8_t* classes) {
  HWY_DYNAMIC_DISPATCH(Classes)(means, n, scale, shift, classes);
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
