#include "elastiquant/kernels/pack.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/pack.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The or of all 8 bytes.
inline uint8_t FoldOr(uint64_t x) {
  x |= x >> 32;
  x |= x >> 16;
  return static_cast<uint8_t>(x | x >> 8);
}

// Eight codes in the bytes of x, to 8*kBits dense bits: neighbours are joined three times.
template <int kBits>
inline uint64_t Squeeze(uint64_t x) {
  constexpr int kGap = 8 - kBits;
  x = (x & 0x00FF00FF00FF00FFu) | (x & 0xFF00FF00FF00FF00u) >> kGap;
  x = (x & 0x0000FFFF0000FFFFu) | (x & 0xFFFF0000FFFF0000u) >> (2 * kGap);
  return (x & 0x00000000FFFFFFFFu) | (x & 0xFFFFFFFF00000000u) >> (4 * kGap);
}

template <int kBits>
inline uint64_t Spread(uint64_t x) {
  constexpr int kGap = 8 - kBits;
  constexpr uint64_t kMask4 = (uint64_t{1} << (4 * kBits)) - 1;
  constexpr uint64_t kMask2 = ((uint64_t{1} << (2 * kBits)) - 1) * 0x0000000100000001u;
  constexpr uint64_t kMask1 = ((uint64_t{1} << kBits) - 1) * 0x0001000100010001u;
  x = (x & kMask4) | (x & kMask4 << (4 * kBits)) << (4 * kGap);
  x = (x & kMask2) | (x & kMask2 << (2 * kBits)) << (2 * kGap);
  return (x & kMask1) | (x & kMask1 << kBits) << kGap;
}

// Codes [begin, n) eight at a time; begin is a multiple of 8.
template <int kBits>
uint8_t PackTail(const uint8_t* codes, size_t begin, size_t n, uint8_t* packed) {
  uint64_t all = 0;
  size_t i = begin;
  packed += begin / 8 * kBits;
  for (; i + 8 <= n; i += 8, packed += kBits) {
    uint64_t x;
    std::memcpy(&x, codes + i, 8);
    all |= x;
    x = Squeeze<kBits>(x);
    std::memcpy(packed, &x, kBits);
  }
  if (i < n) {
    uint64_t x = 0;
    std::memcpy(&x, codes + i, n - i);
    all |= x;
    x = Squeeze<kBits>(x);
    std::memcpy(packed, &x, PackedBytes(n - i, kBits));
  }
  return FoldOr(all);
}

template <int kBits>
void UnpackTail(const uint8_t* packed, size_t begin, size_t n, uint8_t* codes) {
  size_t i = begin;
  packed += begin / 8 * kBits;
  // Eight bytes at once, of which Spread drops those behind its codes, as long as there are
  // eight: a load of fewer is put together in memory, and reading that back takes long.
  for (; PackedBytes(n - i, kBits) >= 8; i += 8, packed += kBits) {
    uint64_t x;
    std::memcpy(&x, packed, 8);
    x = Spread<kBits>(x);
    std::memcpy(codes + i, &x, 8);
  }
  for (; i + 8 <= n; i += 8, packed += kBits) {
    uint64_t x = 0;
    std::memcpy(&x, packed, kBits);
    x = Spread<kBits>(x);
    std::memcpy(codes + i, &x, 8);
  }
  if (i < n) {
    uint64_t x = 0;
    std::memcpy(&x, packed, PackedBytes(n - i, kBits));
    x = Spread<kBits>(x);
    std::memcpy(codes + i, &x, n - i);
  }
}

#if HWY_TARGET == HWY_SCALAR
uint8_t Pack4(const uint8_t* codes, size_t n, uint8_t* packed) {
  return PackTail<4>(codes, 0, n, packed);
}
void Unpack4(const uint8_t* packed, size_t n, uint8_t* codes) {
  UnpackTail<4>(packed, 0, n, codes);
}
uint8_t Pack2(const uint8_t* codes, size_t n, uint8_t* packed) {
  return PackTail<2>(codes, 0, n, packed);
}
void Unpack2(const uint8_t* packed, size_t n, uint8_t* codes) {
  UnpackTail<2>(packed, 0, n, codes);
}
#else
using D8 = hn::ScalableTag<uint8_t>;
using D16 = hn::Repartition<uint16_t, D8>;
using D32 = hn::Repartition<uint32_t, D8>;

uint8_t ReduceOr(hn::Vec<D8> v) {
  HWY_ALIGN uint8_t lanes[HWY_MAX_BYTES];
  hn::Store(v, D8(), lanes);
  uint8_t all = 0;
  for (size_t i = 0; i < hn::Lanes(D8()); ++i) all |= lanes[i];
  return all;
}

// Pairs of nibbles: the odd byte of each 16-bit lane moves down beside the even one.
uint8_t Pack4(const uint8_t* codes, size_t n, uint8_t* packed) {
  const D8 d8;
  const D16 d16;
  const size_t lanes = hn::Lanes(d8);
  auto all = hn::Zero(d8);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d8, codes + i);
    const auto b = hn::LoadU(d8, codes + i + lanes);
    all = hn::Or(all, hn::Or(a, b));
    const auto a16 = hn::BitCast(d16, a);
    const auto b16 = hn::BitCast(d16, b);
    const auto pairs_a = hn::Or(a16, hn::ShiftRight<4>(a16));
    const auto pairs_b = hn::Or(b16, hn::ShiftRight<4>(b16));
    const auto out = hn::ConcatEven(d8, hn::BitCast(d8, pairs_b), hn::BitCast(d8, pairs_a));
    hn::StoreU(out, d8, packed + i / 2);
  }
  return static_cast<uint8_t>(ReduceOr(all) | PackTail<4>(codes, i, n, packed));
}

void Unpack4(const uint8_t* packed, size_t n, uint8_t* codes) {
  const D8 d8;
  const D16 d16;
  const hn::Half<D8> half;
  const size_t lanes = hn::Lanes(d8);
  const auto low = hn::Set(d16, 0x0F0F);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto pairs = hn::PromoteTo(d16, hn::LoadU(half, packed + i / 2));
    const auto out = hn::And(hn::Or(pairs, hn::ShiftLeft<4>(pairs)), low);
    hn::StoreU(hn::BitCast(d8, out), d8, codes + i);
  }
  UnpackTail<4>(packed, i, n, codes);
}

uint8_t Pack2(const uint8_t* codes, size_t n, uint8_t* packed) {
  const D8 d8;
  const D32 d32;
  const size_t lanes = hn::Lanes(d8);
  auto all = hn::Zero(d8);
  const auto join = [&](const uint8_t* from) HWY_ATTR {
    const auto v = hn::LoadU(d8, from);
    all = hn::Or(all, v);
    const auto quads = hn::BitCast(d32, v);
    const auto pairs = hn::Or(quads, hn::ShiftRight<6>(quads));
    return hn::BitCast(d8, hn::Or(pairs, hn::ShiftRight<12>(pairs)));
  };
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto a = join(codes + i);
    const auto b = join(codes + i + lanes);
    const auto c = join(codes + i + 2 * lanes);
    const auto d = join(codes + i + 3 * lanes);
    // Twice the even bytes: the lowest byte of each 32-bit lane is left.
    hn::StoreU(hn::ConcatEven(d8, hn::ConcatEven(d8, d, c), hn::ConcatEven(d8, b, a)), d8,
               packed + i / 4);
  }
  return static_cast<uint8_t>(ReduceOr(all) | PackTail<2>(codes, i, n, packed));
}

void Unpack2(const uint8_t* packed, size_t n, uint8_t* codes) {
  const D8 d8;
  const D32 d32;
  const hn::Rebind<uint8_t, D32> quarter;
  const size_t lanes = hn::Lanes(d8);
  const auto low = hn::Set(d32, 0x03030303);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto quads = hn::PromoteTo(d32, hn::LoadU(quarter, packed + i / 4));
    const auto pairs = hn::Or(quads, hn::ShiftLeft<12>(quads));
    const auto out = hn::And(hn::Or(pairs, hn::ShiftLeft<6>(pairs)), low);
    hn::StoreU(hn::BitCast(d8, out), d8, codes + i);
  }
  UnpackTail<2>(packed, i, n, codes);
}
#endif  // HWY_TARGET == HWY_SCALAR

uint8_t Pack(const uint8_t* codes, size_t n, int bits, uint8_t* packed) {
  switch (bits) {
    case 1:
      return PackTail<1>(codes, 0, n, packed);
    case 2:
      return Pack2(codes, n, packed);
    case 3:
      return PackTail<3>(codes, 0, n, packed);
    case 4:
      return Pack4(codes, n, packed);
    case 5:
      return PackTail<5>(codes, 0, n, packed);
    case 6:
      return PackTail<6>(codes, 0, n, packed);
    case 7:
      return PackTail<7>(codes, 0, n, packed);
    default:
      break;
  }
  if (n != 0) std::memcpy(packed, codes, n);
  return 0xFF;  // any byte is a code of 8 bits: nothing to look for
}

void Unpack(const uint8_t* packed, size_t n, int bits, uint8_t* codes) {
  switch (bits) {
    case 1:
      return UnpackTail<1>(packed, 0, n, codes);
    case 2:
      return Unpack2(packed, n, codes);
    case 3:
      return UnpackTail<3>(packed, 0, n, codes);
    case 4:
      return Unpack4(packed, n, codes);
    case 5:
      return UnpackTail<5>(packed, 0, n, codes);
    case 6:
      return UnpackTail<6>(packed, 0, n, codes);
    case 7:
      return UnpackTail<7>(packed, 0, n, codes);
    default:
      break;
  }
  if (n != 0) std::memcpy(codes, packed, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(Pack);
HWY_EXPORT(Unpack);

uint8_t PackCodes(const uint8_t* codes, size_t n, int bits, uint8_t* packed) {
  return HWY_DYNAMIC_DISPATCH(Pack)(codes, n, bits, packed);
}

void UnpackCodes(const uint8_t* packed, size_t n, int bits, uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(Unpack)(packed, n, bits, codes);
}

}  // namespace elastiquant
#endif
