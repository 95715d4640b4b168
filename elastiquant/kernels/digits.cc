#include "elastiquant/kernels/digits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "elastiquant/kernels/pack.h"

namespace elastiquant {
namespace {

struct DigitGroup {
  int digits;  // k
  int bits;    // b
};

// The group of a base that is not a power of two.
constexpr DigitGroup Group(int base) {
  switch (base) {
    case 3:
      return {5, 8};
    case 5:
      return {3, 7};
    case 6:
      return {5, 13};
    case 7:
      return {6, 17};
    case 9:
      return {5, 16};
    case 10:
      return {3, 10};
    case 11:
      return {2, 7};
    case 12:
      return {5, 18};
    case 13:
      return {4, 15};
    case 14:
      return {6, 23};
    default:
      return {11, 43};  // 15
  }
}

bool IsPowerOfTwo(int base) { return std::has_single_bit(static_cast<unsigned>(base)); }
int BitsOf(int base) { return std::countr_zero(static_cast<unsigned>(base)); }

// What the loops below need of a base, known when they are compiled: divisions become
// multiplications.
template <int kBase>
struct Of {
  static constexpr DigitGroup kGroup = Group(kBase);
  static constexpr size_t kDigits = kGroup.digits;
  using Number = std::conditional_t<(kGroup.bits > 32), uint64_t, uint32_t>;

  static constexpr Number End() {  // base^k
    Number power = 1;
    for (size_t i = 0; i < kDigits; ++i) power *= kBase;
    return power;
  }
};

template <int kBase>
bool Pack(const uint8_t* digits, size_t n, uint8_t* packed) {
  using Base = Of<kBase>;
  uint64_t bits = 0;
  int used = 0;
  uint8_t largest = 0;
  for (size_t i = 0; i < n; i += Base::kDigits) {
    uint8_t group[Base::kDigits] = {};
    std::memcpy(group, digits + i, std::min(n - i, Base::kDigits));
    typename Base::Number number = 0;
    for (size_t k = Base::kDigits; k-- > 0;) {
      number = number * kBase + group[k];
      largest = std::max(largest, group[k]);
    }
    bits |= static_cast<uint64_t>(number) << used;
    for (used += Base::kGroup.bits; used >= 8; used -= 8, bits >>= 8) {
      *packed++ = static_cast<uint8_t>(bits);
    }
  }
  if (used > 0) *packed = static_cast<uint8_t>(bits);
  return largest < kBase;
}

template <int kBase>
bool Unpack(const uint8_t* packed, size_t n, uint8_t* digits) {
  using Base = Of<kBase>;
  uint64_t bits = 0;
  int held = 0;
  bool good = true;
  for (size_t i = 0; i < n; i += Base::kDigits) {
    for (; held < Base::kGroup.bits; held += 8)
      bits |= static_cast<uint64_t>(*packed++) << held;
    auto number =
        static_cast<typename Base::Number>(bits & ((uint64_t{1} << Base::kGroup.bits) - 1));
    bits >>= Base::kGroup.bits;
    held -= Base::kGroup.bits;
    good &= number < Base::End();
    uint8_t group[Base::kDigits];
    for (uint8_t& digit : group) {
      digit = static_cast<uint8_t>(number % kBase);
      number /= kBase;
    }
    const size_t wanted = std::min(n - i, Base::kDigits);
    std::memcpy(digits + i, group, wanted);
    for (size_t k = wanted; k < Base::kDigits; ++k) good &= group[k] == 0;
  }
  return good && bits == 0;
}

// Codes whose filling bits PackCodes' inverse does not look at.
bool LastByteIsFilledWithZeros(const uint8_t* packed, size_t n, int bits) {
  const int filled = static_cast<int>(n % 8) * bits % 8;
  return filled == 0 || packed[PackedBytes(n, bits) - 1] >> filled == 0;
}

// Calls fn with the base as a constant.
template <class Fn>
bool WithBase(int base, Fn fn) {
  switch (base) {
#define EQ_BASE(b) \
  case b:          \
    return fn(std::integral_constant<int, b>())
    EQ_BASE(3);
    EQ_BASE(5);
    EQ_BASE(6);
    EQ_BASE(7);
    EQ_BASE(9);
    EQ_BASE(10);
    EQ_BASE(11);
    EQ_BASE(12);
    EQ_BASE(13);
    EQ_BASE(14);
    EQ_BASE(15);
#undef EQ_BASE
    default:
      return false;
  }
}

}  // namespace

size_t PackedDigitBytes(size_t n, int base) {
  if (IsPowerOfTwo(base)) return PackedBytes(n, BitsOf(base));
  const DigitGroup group = Group(base);
  const auto digits = static_cast<size_t>(group.digits), bits = static_cast<size_t>(group.bits);
  return ((n + digits - 1) / digits * bits + 7) / 8;
}

bool PackDigits(const uint8_t* digits, size_t n, int base, uint8_t* packed) {
  if (IsPowerOfTwo(base)) {
    return base == 256 ? (PackCodes(digits, n, 8, packed), true)
                       : PackCodes(digits, n, BitsOf(base), packed) < base;
  }
  return WithBase(base, [&](auto b) { return Pack<b()>(digits, n, packed); });
}

bool UnpackDigits(const uint8_t* packed, size_t n, int base, uint8_t* digits) {
  if (IsPowerOfTwo(base)) {
    UnpackCodes(packed, n, BitsOf(base), digits);
    return LastByteIsFilledWithZeros(packed, n, BitsOf(base));
  }
  return WithBase(base, [&](auto b) { return Unpack<b()>(packed, n, digits); });
}

}  // namespace elastiquant
