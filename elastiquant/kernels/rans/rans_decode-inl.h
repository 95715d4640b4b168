// Steps of rANS decoding for states in halves of 16 bits, and the words that refill them. This
// file is included once for each SIMD target.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#ifndef ELASTIQUANT_RANS_EXPAND_SHUFFLES
#define ELASTIQUANT_RANS_EXPAND_SHUFFLES
namespace elastiquant {

// Makes, for each mask of 8 lanes of 16 bits, the byte shuffle that moves the front lanes to
// those that are set.
constexpr std::array<std::array<uint8_t, 16>, 256> MakeExpandShuffles() {
  std::array<std::array<uint8_t, 16>, 256> shuffles{};
  for (size_t mask = 0; mask < 256; ++mask) {
    uint8_t from = 0;
    for (size_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      shuffles[mask][2 * lane] = from++;
      shuffles[mask][2 * lane + 1] = from++;
    }
  }
  return shuffles;
}
alignas(64) inline constexpr auto kExpandShuffles = MakeExpandShuffles();

}  // namespace elastiquant
#endif  // ELASTIQUANT_RANS_EXPAND_SHUFFLES

#if defined(ELASTIQUANT_KERNELS_RANS_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELASTIQUANT_KERNELS_RANS_DECODE_INL_H_
#undef ELASTIQUANT_KERNELS_RANS_DECODE_INL_H_
#else
#define ELASTIQUANT_KERNELS_RANS_DECODE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
using D16 = hn::CappedTag<uint16_t, 32>;
using V16 = hn::Vec<D16>;
using M16 = hn::Mask<D16>;
using DI16 = hn::RebindToSigned<D16>;
constexpr size_t kDecoderLanes = hn::MaxLanes(D16());

// Returns the next words, in order, in the lanes that are set, and `other` in the rest.
// Advances *next past the words.
HWY_INLINE V16 ExpandWords(M16 mask, V16 other, const uint8_t** next) {
  const D16 d;
  const uint8_t* words = *next;
#if HWY_TARGET == HWY_AVX3_DL
  *next += 2 * hn::CountTrue(d, mask);
  return V16{_mm512_mask_expand_epi16(other.raw, mask.raw, _mm512_loadu_si512(words))};
#elif HWY_TARGET == HWY_AVX3
  const auto low = static_cast<__mmask16>(mask.raw);
  const auto high = static_cast<__mmask16>(mask.raw >> 16);
  const auto expand = [](__mmask16 lanes, const uint8_t* from) HWY_ATTR {
    const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_cvtepi32_epi16(
        _mm512_maskz_expand_epi32(lanes, _mm512_cvtepu16_epi32(packed)));
  };
  const __m256i a = expand(low, words);
  words += 2 * std::popcount(low);
  const __m256i b = expand(high, words);
  *next = words + 2 * std::popcount(high);
  const V16 expanded{_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1)};
  return hn::IfThenElse(mask, expanded, other);
#else
  const hn::CappedTag<uint8_t, 16> d8;
  uint8_t bits[8] = {};
  hn::StoreMaskBits(d, mask, bits);
  const auto expand = [&](uint8_t lanes) HWY_ATTR {
    const auto shuffle = hn::Load(d8, kExpandShuffles[lanes].data());
    const auto out = hn::TableLookupBytes(hn::LoadU(d8, words), shuffle);
    words += 2 * std::popcount(lanes);
    return out;
  };
  const auto a = expand(bits[0]);
#if HWY_TARGET == HWY_AVX2
  const hn::Repartition<uint8_t, D16> d8_full;
  const auto b = expand(bits[1]);
  *next = words;
  return hn::IfThenElse(mask, hn::BitCast(d, hn::Combine(d8_full, b, a)), other);
#else
  *next = words;
  return hn::IfThenElse(mask, hn::BitCast(d, a), other);
#endif
#endif
}

// Steps the states to f * (x >> 12) + offset and refills them.
HWY_INLINE void StepDecoder(V16 f, V16 offset, V16* low, V16* high, const uint8_t** next) {
  const D16 d;
#if HWY_TARGET == HWY_AVX3_DL
  const V16 q_low{_mm512_shldi_epi16(high->raw, low->raw, 4)};
#else
  const V16 q_low = hn::Or(hn::ShiftLeft<4>(*high), hn::ShiftRight<12>(*low));
#endif
  const V16 q_high = hn::ShiftRight<12>(*high);
  const V16 product_high = hn::Add(hn::MulHigh(q_low, f), hn::Mul(q_high, f));
  const V16 new_low = hn::Add(hn::Mul(q_low, f), offset);
  const auto carry = hn::Lt(new_low, offset);
  const V16 new_high =
      hn::IfThenElse(carry, hn::Add(product_high, hn::Set(d, 1)), product_high);
  // This tells whether new_high is 0, but without waiting for it.
  const auto empty = hn::AndNot(carry, hn::Eq(product_high, hn::Zero(d)));
  *high = hn::IfThenElse(empty, new_low, new_high);
  *low = ExpandWords(empty, new_low, next);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
