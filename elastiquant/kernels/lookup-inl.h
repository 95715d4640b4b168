// Tables of floats that are looked up by vectors of indices. This file is included once for
// each SIMD target.
#if defined(ELASTIQUANT_KERNELS_LOOKUP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELASTIQUANT_KERNELS_LOOKUP_INL_H_
#undef ELASTIQUANT_KERNELS_LOOKUP_INL_H_
#else
#define ELASTIQUANT_KERNELS_LOOKUP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Looks up table[index] for indices in 0..7. That takes one permutation, or two and a choice
// where vectors have four lanes.
template <class D>
class Table8 {
  using V = hwy::HWY_NAMESPACE::Vec<D>;
  using DU = hwy::HWY_NAMESPACE::RebindToUnsigned<D>;
  using VU = hwy::HWY_NAMESPACE::Vec<DU>;

 public:
  // Reads as many floats from `table` as a vector has lanes, and at least 8.
  HWY_INLINE explicit Table8(const float* table)
      : low_(hwy::HWY_NAMESPACE::LoadU(D(), table)),
        high_(hwy::HWY_NAMESPACE::LoadU(D(), table + (kWide ? 0 : 4))) {}

  HWY_INLINE V operator()(VU index) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const D d;
    const DU du;
    if constexpr (kWide) {
      return hn::TableLookupLanes(low_, hn::IndicesFromVec(d, index));
    } else {
      const auto low_index = hn::IndicesFromVec(d, hn::And(index, hn::Set(du, 3)));
      const auto is_high = hn::RebindMask(d, hn::TestBit(index, hn::Set(du, 4)));
      return hn::IfThenElse(is_high, hn::TableLookupLanes(high_, low_index),
                            hn::TableLookupLanes(low_, low_index));
    }
  }

  // Returns the table with fn applied to its entries.
  template <class Fn>
  HWY_INLINE Table8 Map(Fn fn) const {
    Table8 mapped = *this;
    mapped.low_ = fn(low_);
    mapped.high_ = fn(high_);
    return mapped;
  }

 private:
  static constexpr bool kWide = hwy::HWY_NAMESPACE::MaxLanes(D()) >= 8;
  V low_, high_;
};

// Looks up table[index] for indices in 0..15. It reads 16 floats from `table`.
template <class D>
class Table16 {
  using V = hwy::HWY_NAMESPACE::Vec<D>;
  using DU = hwy::HWY_NAMESPACE::RebindToUnsigned<D>;
  using VU = hwy::HWY_NAMESPACE::Vec<DU>;

 public:
  HWY_INLINE explicit Table16(const float* table)
      : low_(table), high_(table + (kWide ? 0 : 8)) {}

  HWY_INLINE V operator()(VU index) const {
    namespace hn = hwy::HWY_NAMESPACE;
    if constexpr (kWide) {
      return low_(index);
    } else {
      const D d;
      const DU du;
      const VU low_index = hn::And(index, hn::Set(du, 7));
      const auto is_high = hn::RebindMask(d, hn::TestBit(index, hn::Set(du, 8)));
      return hn::IfThenElse(is_high, high_(low_index), low_(low_index));
    }
  }

 private:
  static constexpr bool kWide = hwy::HWY_NAMESPACE::MaxLanes(D()) >= 16;
  Table8<D> low_, high_;
};

// Looks up table[index] for indices in 0..127. It reads 128 floats from `table`. With AVX-512
// it permutes registers, which is several times as fast as gathering.
template <class D>
class Table128 {
  using V = hwy::HWY_NAMESPACE::Vec<D>;
  using DU = hwy::HWY_NAMESPACE::RebindToUnsigned<D>;
  using VU = hwy::HWY_NAMESPACE::Vec<DU>;

 public:
#if HWY_TARGET <= HWY_AVX3
  HWY_INLINE explicit Table128(const float* table) {
    for (size_t i = 0; i < 8; ++i) part_[i] = _mm512_loadu_ps(table + 16 * i);
  }
  HWY_INLINE V operator()(VU index) const {
    const __m512i i = index.raw;
    const __m512 a = _mm512_permutex2var_ps(part_[0], i, part_[1]);
    const __m512 b = _mm512_permutex2var_ps(part_[2], i, part_[3]);
    const __m512 c = _mm512_permutex2var_ps(part_[4], i, part_[5]);
    const __m512 d = _mm512_permutex2var_ps(part_[6], i, part_[7]);
    const __mmask16 bit5 = _mm512_test_epi32_mask(i, _mm512_set1_epi32(32));
    const __mmask16 bit6 = _mm512_test_epi32_mask(i, _mm512_set1_epi32(64));
    return V{_mm512_mask_blend_ps(bit6, _mm512_mask_blend_ps(bit5, a, b),
                                  _mm512_mask_blend_ps(bit5, c, d))};
  }

 private:
  __m512 part_[8];
#else
  HWY_INLINE explicit Table128(const float* table) : table_(table) {}
  HWY_INLINE V operator()(VU index) const {
    namespace hn = hwy::HWY_NAMESPACE;
    return hn::GatherIndex(D(), table_, hn::BitCast(hn::RebindToSigned<D>(), index));
  }

 private:
  const float* table_;
#endif
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
