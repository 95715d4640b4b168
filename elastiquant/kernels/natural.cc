// Plain integer loops that the compiler vectorises, built once for each SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/natural.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "elastiquant/kernels/natural.h"

#include <bit>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {

constexpr uint32_t kAbsMask = 0x7FFFFFFF;
constexpr uint32_t kLargest = 0x7F000000;  // 2^127

size_t SplitNatural(const float* HWY_RESTRICT in, size_t n, RandomRun random,
                    uint8_t* HWY_RESTRICT exponents, uint8_t* HWY_RESTRICT signs) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(in[i]);
    const uint32_t magnitude = bits & kAbsMask;
    const uint32_t u = RandomBits(random.keys, random.first + static_cast<uint32_t>(i)) >> 9;
    bad |= magnitude > kLargest ? 1u : 0u;
    // The mantissa, as a fraction, is the place between both powers: it carries as often.
    exponents[i] = static_cast<uint8_t>((magnitude + u) >> 23);
    signs[i] = static_cast<uint8_t>(bits >> 31);
  }
  if (bad == 0) return n;
  size_t i = 0;
  while ((std::bit_cast<uint32_t>(in[i]) & kAbsMask) <= kLargest) ++i;
  return i;
}

HWY_INLINE float ValueOf(uint8_t exponent, uint8_t sign) {
  return std::bit_cast<float>(static_cast<uint32_t>(sign) << 31 |
                              static_cast<uint32_t>(exponent) << 23);
}

bool JoinNatural(const uint8_t* HWY_RESTRICT exponents, const uint8_t* HWY_RESTRICT signs,
                 size_t n, Accumulate how, float* HWY_RESTRICT out) {
  uint8_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = HWY_MAX(largest, exponents[i]);
  if (how.add) {
    for (size_t i = 0; i < n; ++i) out[i] += how.weight * ValueOf(exponents[i], signs[i]);
  } else {
    for (size_t i = 0; i < n; ++i) out[i] = ValueOf(exponents[i], signs[i]);
  }
  return largest < 255;
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(SplitNatural);
HWY_EXPORT(JoinNatural);

size_t SplitNatural(const float* in, size_t n, RandomRun random, uint8_t* exponents,
                    uint8_t* signs) {
  return HWY_DYNAMIC_DISPATCH(SplitNatural)(in, n, random, exponents, signs);
}

bool JoinNatural(const uint8_t* exponents, const uint8_t* signs, size_t n, Accumulate how,
                 float* out) {
  return HWY_DYNAMIC_DISPATCH(JoinNatural)(exponents, signs, n, how, out);
}

}  // namespace elastiquant
#endif  // HWY_ONCE
