// Plain loops that the compiler vectorises, built once for each SIMD target by Highway. They
// are integer arithmetic but for additions that are exact or rounded once, so every target
// gives the same bytes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/convert.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "elastiquant/kernels/convert.h"

#include <bit>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {

constexpr uint32_t kAbsMask = 0x7FFFFFFF;
constexpr uint32_t kMaxFinite = 0x7F7FFFFF;
constexpr uint32_t kMaxBf16 = 0x7F7F0000;  // as a float

HWY_INLINE uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
HWY_INLINE uint16_t Sign16(uint32_t bits) { return static_cast<uint16_t>(bits >> 16 & 0x8000); }

HWY_INLINE uint32_t ToFp32(uint32_t bits, uint32_t) { return bits; }

HWY_INLINE uint16_t ToFp16(uint32_t bits, uint32_t) {
  // The largest float that rounds to 65504.
  const uint32_t a = HWY_MIN(bits & kAbsMask, 0x477FEFFFu);
  const uint32_t normal = (a - (112u << 23) + 0xFFF + (a >> 13 & 1)) >> 13;
  // The last place of 0.5 is 2^-24, that of a binary16 denormal: the addition rounds.
  const uint32_t denormal = Bits(std::bit_cast<float>(a) + 0.5f) - Bits(0.5f);
  return static_cast<uint16_t>((a < (113u << 23) ? denormal : normal) | Sign16(bits));
}

HWY_INLINE uint16_t ToBf16(uint32_t bits, uint32_t) {
  const uint32_t a = HWY_MIN(bits & kAbsMask, kMaxBf16 + 0x7FFF);
  return static_cast<uint16_t>((a + 0x7FFF + (a >> 16 & 1)) >> 16 | Sign16(bits));
}

HWY_INLINE uint16_t ToBf16Stochastic(uint32_t bits, uint32_t random) {
  return static_cast<uint16_t>(((bits & kAbsMask) + (random >> 16)) >> 16 | Sign16(bits));
}

HWY_INLINE float FromFp32(uint32_t bits) { return std::bit_cast<float>(bits); }

HWY_INLINE float FromFp16(uint16_t half) {
  // No branches, or the loop is not vectorised. A denormal is put behind a one in the first
  // place, as 2^-14 + its value; taking 2^-14 away again is exact.
  const uint32_t m = half & 0x7FFFu;
  const uint32_t denormal = m < 0x400 ? 1 : 0;
  const uint32_t infinite = m >= 0x7C00 ? 1 : 0;
  const float shifted = std::bit_cast<float>((m << 13) + ((112 + denormal) << 23));
  const float magnitude = shifted - std::bit_cast<float>(denormal * (113u << 23));
  return std::bit_cast<float>(Bits(magnitude) | infinite * 0x7F800000u |
                              static_cast<uint32_t>(half & 0x8000) << 16);
}

HWY_INLINE float FromBf16(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

// The first value whose magnitude exceeds `limit` is looked for only if there is one.
HWY_INLINE size_t FirstAbove(const float* in, size_t n, uint32_t limit) {
  for (size_t i = 0; i < n; ++i) {
    if ((Bits(in[i]) & kAbsMask) > limit) return i;
  }
  return n;
}

#define EQ_PACK_LOOP(Convert, limit, random)                        \
  uint32_t bad = 0;                                                 \
  for (size_t i = 0; i < n; ++i) {                                  \
    const uint32_t bits = Bits(in[i]);                              \
    bad |= (bits & kAbsMask) > (limit) ? 1u : 0u;                   \
    const auto packed = Convert(bits, random);                      \
    std::memcpy(out + i * sizeof(packed), &packed, sizeof(packed)); \
  }                                                                 \
  return bad == 0 ? n : FirstAbove(in, n, limit)

size_t PackFp32(const float* HWY_RESTRICT in, size_t n, uint8_t* HWY_RESTRICT out) {
  EQ_PACK_LOOP(ToFp32, kMaxFinite, 0);
}
size_t PackFp16(const float* HWY_RESTRICT in, size_t n, uint8_t* HWY_RESTRICT out) {
  EQ_PACK_LOOP(ToFp16, kMaxFinite, 0);
}
size_t PackBf16(const float* HWY_RESTRICT in, size_t n, uint8_t* HWY_RESTRICT out) {
  EQ_PACK_LOOP(ToBf16, kMaxFinite, 0);
}
size_t PackBf16Stochastic(const float* HWY_RESTRICT in, size_t n, LaneKeys keys, uint32_t first,
                          uint8_t* HWY_RESTRICT out) {
  EQ_PACK_LOOP(ToBf16Stochastic, kMaxBf16, RandomBits(keys, first + static_cast<uint32_t>(i)));
}

#define EQ_UNPACK_LOOP(Packed, Convert, store)                     \
  uint32_t bad = 0;                                                \
  for (size_t i = 0; i < n; ++i) {                                 \
    Packed packed;                                                 \
    std::memcpy(&packed, in + i * sizeof(packed), sizeof(packed)); \
    const float value = Convert(packed);                           \
    bad |= (Bits(value) & kAbsMask) > kMaxFinite ? 1u : 0u;        \
    store;                                                         \
  }                                                                \
  return bad == 0

bool UnpackFp32(const uint8_t* HWY_RESTRICT in, size_t n, float* HWY_RESTRICT out) {
  EQ_UNPACK_LOOP(uint32_t, FromFp32, out[i] = value);
}
bool UnpackFp16(const uint8_t* HWY_RESTRICT in, size_t n, float* HWY_RESTRICT out) {
  EQ_UNPACK_LOOP(uint16_t, FromFp16, out[i] = value);
}
bool UnpackBf16(const uint8_t* HWY_RESTRICT in, size_t n, float* HWY_RESTRICT out) {
  EQ_UNPACK_LOOP(uint16_t, FromBf16, out[i] = value);
}
bool UnpackAddFp32(const uint8_t* HWY_RESTRICT in, size_t n, float weight,
                   float* HWY_RESTRICT out) {
  EQ_UNPACK_LOOP(uint32_t, FromFp32, out[i] += weight * value);
}
bool UnpackAddFp16(const uint8_t* HWY_RESTRICT in, size_t n, float weight,
                   float* HWY_RESTRICT out) {
  EQ_UNPACK_LOOP(uint16_t, FromFp16, out[i] += weight * value);
}
bool UnpackAddBf16(const uint8_t* HWY_RESTRICT in, size_t n, float weight,
                   float* HWY_RESTRICT out) {
  EQ_UNPACK_LOOP(uint16_t, FromBf16, out[i] += weight * value);
}

#undef EQ_PACK_LOOP
#undef EQ_UNPACK_LOOP

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(PackFp32);
HWY_EXPORT(PackFp16);
HWY_EXPORT(PackBf16);
HWY_EXPORT(PackBf16Stochastic);
HWY_EXPORT(UnpackFp32);
HWY_EXPORT(UnpackFp16);
HWY_EXPORT(UnpackBf16);
HWY_EXPORT(UnpackAddFp32);
HWY_EXPORT(UnpackAddFp16);
HWY_EXPORT(UnpackAddBf16);

size_t PackFp32(const float* in, size_t n, uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(PackFp32)(in, n, out);
}
size_t PackFp16(const float* in, size_t n, uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(PackFp16)(in, n, out);
}
size_t PackBf16(const float* in, size_t n, uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(PackBf16)(in, n, out);
}
size_t PackBf16Stochastic(const float* in, size_t n, LaneKeys keys, uint32_t first,
                          uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(PackBf16Stochastic)(in, n, keys, first, out);
}
bool UnpackFp32(const uint8_t* in, size_t n, float* out) {
  return HWY_DYNAMIC_DISPATCH(UnpackFp32)(in, n, out);
}
bool UnpackFp16(const uint8_t* in, size_t n, float* out) {
  return HWY_DYNAMIC_DISPATCH(UnpackFp16)(in, n, out);
}
bool UnpackBf16(const uint8_t* in, size_t n, float* out) {
  return HWY_DYNAMIC_DISPATCH(UnpackBf16)(in, n, out);
}
bool UnpackAddFp32(const uint8_t* in, size_t n, float weight, float* out) {
  return HWY_DYNAMIC_DISPATCH(UnpackAddFp32)(in, n, weight, out);
}
bool UnpackAddFp16(const uint8_t* in, size_t n, float weight, float* out) {
  return HWY_DYNAMIC_DISPATCH(UnpackAddFp16)(in, n, weight, out);
}
bool UnpackAddBf16(const uint8_t* in, size_t n, float weight, float* out) {
  return HWY_DYNAMIC_DISPATCH(UnpackAddBf16)(in, n, weight, out);
}

}  // namespace elastiquant
#endif  // HWY_ONCE
