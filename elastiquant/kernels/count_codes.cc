#include "elastiquant/kernels/count_codes.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/count_codes.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
size_t CountSmallCodes(const uint8_t*, size_t, uint32_t[16], uint8_t*) { return 0; }
#else

// Adds up how often 0 to 15 occur in as many codes as it likes from the front, and the or of
// these; returns how many they are.
size_t CountSmallCodes(const uint8_t* codes, size_t n, uint32_t counts[16], uint8_t* all) {
  const hn::ScalableTag<uint8_t> d;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  const size_t lanes = hn::Lanes(d);
  auto any = hn::Zero(d);
#if HWY_TARGET <= HWY_AVX3
  const auto all_ones = hn::Set(d, 0xFF);
#endif
  size_t i = 0;
  while (i + lanes <= n) {
    // Lanes of 8 bits: no more than 255 steps.
    const size_t end = i + lanes * std::min<size_t>(255, (n - i) / lanes);
    hn::Vec<decltype(d)> sums[16];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (; i < end; i += lanes) {
      const auto v = hn::LoadU(d, codes + i);
      any = hn::Or(any, v);
      HWY_UNROLL(16)
      for (uint8_t c = 0; c < 16; ++c) {
#if HWY_TARGET <= HWY_AVX3
        const __mmask64 same = _mm512_cmpeq_epi8_mask(v.raw, hn::Set(d, c).raw);
        sums[c].raw = _mm512_mask_sub_epi8(sums[c].raw, same, sums[c].raw, all_ones.raw);
#else
        // A true mask is -1.
        sums[c] = hn::Sub(sums[c], hn::VecFromMask(d, hn::Eq(v, hn::Set(d, c))));
#endif
      }
    }
    for (size_t c = 0; c < 16; ++c) {
      const auto sum = hn::SumOfLanes(d64, hn::SumsOf8(sums[c]));
      counts[c] += static_cast<uint32_t>(hn::GetLane(sum));
    }
  }
  alignas(64) uint8_t any_lanes[HWY_MAX_BYTES];
  hn::Store(any, d, any_lanes);
  for (size_t lane = 0; lane < lanes; ++lane) *all |= any_lanes[lane];
  return i;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(CountSmallCodes);

namespace {

void CountAnyCodes(const uint8_t* codes, size_t n, uint32_t counts[256]) {
  // Four counters a code, since counting the same one again must wait for the store before it.
  uint32_t parts[4][256] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t word;
    std::memcpy(&word, codes + i, 8);
    for (int j = 0; j < 8; ++j) ++parts[j % 4][word >> (8 * j) & 0xFF];
  }
  for (; i < n; ++i) ++parts[0][codes[i]];
  for (size_t c = 0; c < 256; ++c) {
    counts[c] += parts[0][c] + parts[1][c] + parts[2][c] + parts[3][c];
  }
}

}  // namespace

void CountCodes(const uint8_t* codes, size_t n, int bits, uint32_t counts[256]) {
  std::fill_n(counts, 256, 0u);
  size_t done = 0;
  if (bits <= 4) {
    uint8_t all = 0;
    done = HWY_DYNAMIC_DISPATCH(CountSmallCodes)(codes, n, counts, &all);
    if (all >= 16) {
      std::fill_n(counts, 16, 0u);
      done = 0;
    }
  }
  if (n - done < 64) {
    for (; done < n; ++done) ++counts[codes[done]];
  } else {
    CountAnyCodes(codes + done, n - done, counts);
  }
}

}  // namespace elastiquant
#endif  // HWY_ONCE
