#include "elastiquant/kernels/rans/rans_kernels.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/rans/rans_encode.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elastiquant/kernels/rans/rans_encode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// All rows are left to the scalar loops.
size_t EncodeRows(const uint8_t*, size_t rows, size_t, const RansEncoderTable&, uint32_t*,
                  uint8_t**, const uint8_t*, const float*) {
  return rows;
}
size_t ReverseOuterWords(uint8_t*, size_t) { return 0; }
#else

// ---- Encoder: states in 32-bit lanes. The lanes of a vector stand in descending order, since
// words are emitted from the last lane to the first.

// Looks up the parameters of a vector of codes.
template <bool kSmall>
class EncoderLookup {
 public:
  explicit EncoderLookup(const RansEncoderTable& table) : table_(table) {
    if constexpr (kSmall) {
      frequency_start_ = hn::Load(D32(), table.frequency_start);
      reciprocal_ = hn::Load(DF(), table.reciprocal);
    }
  }
  HWY_INLINE void operator()(V32 codes, V32* frequency_start, hn::Vec<DF>* reciprocal) const {
    if constexpr (kSmall) {
      *frequency_start =
          hn::TableLookupLanes(frequency_start_, hn::IndicesFromVec(D32(), codes));
      *reciprocal = hn::TableLookupLanes(reciprocal_, hn::IndicesFromVec(DF(), codes));
    } else {
      const auto index = hn::BitCast(DI32(), codes);
      *frequency_start = hn::GatherIndex(D32(), table_.frequency_start, index);
      *reciprocal = hn::GatherIndex(DF(), table_.reciprocal, index);
    }
  }

 private:
  const RansEncoderTable& table_;
  V32 frequency_start_ = hn::Zero(D32());
  hn::Vec<DF> reciprocal_ = hn::Zero(DF());
};

// Emits words and returns the new states.
template <class Lookup>
HWY_INLINE V32 EncodeVector(V32 x, V32 codes, const Lookup& lookup, uint8_t** next) {
  const D32 d;
  V32 frequency_start = hn::Zero(d);
  auto reciprocal = hn::Zero(DF());
  lookup(codes, &frequency_start, &reciprocal);
  return StepEncoder(x, frequency_start, reciprocal, next);
}

template <bool kSmall, size_t kRowLanes>
size_t EncodeRowsWith(const uint8_t* codes, size_t rows, const RansEncoderTable& table,
                      uint32_t* states, uint8_t** next, const uint8_t* end, const float* soon) {
  const D32 d;
  const hn::Rebind<uint8_t, D32> d8;
  const EncoderLookup<kSmall> lookup(table);
  constexpr size_t kVectors = kRowLanes / kEncoderLanes;
  V32 x[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    x[v] = hn::Reverse(d, hn::LoadU(d, states + v * kEncoderLanes));
  }
  uint8_t* words = *next;
  while (rows > 0 && static_cast<size_t>(end - words) >= 2 * kRowLanes) {
    --rows;
    const uint8_t* row = codes + rows * kRowLanes;
    if (soon != nullptr) {
      for (size_t i = 0; i < kRowLanes; i += 16) hwy::Prefetch(soon + rows * kRowLanes + i);
    }
    HWY_UNROLL(8)
    for (size_t v = kVectors; v-- > 0;) {
      const V32 c = hn::PromoteTo(d, hn::LoadU(d8, row + v * kEncoderLanes));
      x[v] = EncodeVector(x[v], hn::Reverse(d, c), lookup, &words);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(hn::Reverse(d, x[v]), d, states + v * kEncoderLanes);
  }
  *next = words;
  return rows;
}

// Encodes rows from the last on while there is room; returns how many are left.
size_t EncodeRows(const uint8_t* codes, size_t rows, size_t lanes,
                  const RansEncoderTable& table, uint32_t* states, uint8_t** next,
                  const uint8_t* end, const float* soon) {
#if HWY_TARGET <= HWY_AVX3
  if (table.small) {
    return lanes == 32 ? EncodeRowsWith<true, 32>(codes, rows, table, states, next, end, soon)
                       : EncodeRowsWith<true, 64>(codes, rows, table, states, next, end, soon);
  }
#endif
  return lanes == 32 ? EncodeRowsWith<false, 32>(codes, rows, table, states, next, end, soon)
                     : EncodeRowsWith<false, 64>(codes, rows, table, states, next, end, soon);
}

// Swaps and reverses vectors from both ends towards the middle as long as two fit between;
// returns how many words are done at each end.
size_t ReverseOuterWords(uint8_t* words, size_t count) {
  const hn::ScalableTag<uint8_t> d8;
  const hn::Repartition<uint16_t, decltype(d8)> d;
  const size_t lanes = hn::Lanes(d);
  const auto reversed = [&](const uint8_t* from) HWY_ATTR {
    return hn::BitCast(d8, hn::Reverse(d, hn::BitCast(d, hn::LoadU(d8, from))));
  };
  size_t done = 0;
  for (; count - 2 * done >= 2 * lanes; done += lanes) {
    uint8_t* const front = words + 2 * done;
    uint8_t* const back = words + 2 * (count - done - lanes);
    const auto a = reversed(front);
    const auto b = reversed(back);
    hn::StoreU(b, d8, front);
    hn::StoreU(a, d8, back);
  }
  return done;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(EncodeRows);
HWY_EXPORT(ReverseOuterWords);

namespace {

// One step of the encoder: the definition that every SIMD target must match. Whether a word is
// emitted cannot be predicted, so it is always written and passed over only if it counts.
inline uint32_t EncodeStep(uint32_t x, uint32_t frequency_start, uint8_t** words) {
  const uint32_t f = frequency_start & 0xFFFF;
  const uint32_t start = frequency_start >> 16;
  const uint32_t emits = x >> 20 >= f ? 1 : 0;
  std::memcpy(*words, &x, 2);
  *words += 2 * emits;
  x >>= 16 * emits;
  const uint32_t quotient = x / f;
  return (quotient << kRansScaleBits) + (x - quotient * f) + start;
}

}  // namespace

void MakeRansEncoderTable(const RansFrequencies& frequencies, RansEncoderTable* table) {
  uint32_t start = 0;
  table->small = true;
  for (size_t code = 0; code < 256; ++code) {
    const uint32_t f = frequencies.of[code];
    table->frequency_start[code] = f | start << 16;
    // Less by 2^-22 of itself: see the SIMD quotient.
    table->reciprocal[code] = f == 0 ? 0.0f : (1.0f - 0x1p-22f) / static_cast<float>(f);
    if (f != 0 && code >= 16) table->small = false;
    start += f;
  }
}

size_t RansEncodeOne(const uint8_t* codes, size_t n, const RansEncoderTable& table,
                     uint32_t* state, uint8_t* words, size_t capacity) {
  uint8_t* next = words;
  const uint8_t* end = words + 2 * capacity;
  for (size_t i = n; i-- > 0;) {
    if (next == end) return kRansNoRoom;
    *state = EncodeStep(*state, table.frequency_start[codes[i]], &next);
  }
  return static_cast<size_t>(next - words) / 2;
}

size_t RansEncodeRows(const uint8_t* codes, size_t rows, size_t lanes,
                      const RansEncoderTable& table, uint32_t* states, uint8_t* words,
                      size_t capacity, const float* soon) {
  uint8_t* next = words;
  const uint8_t* end = words + 2 * capacity;
  rows = HWY_DYNAMIC_DISPATCH(EncodeRows)(codes, rows, lanes, table, states, &next, end, soon);
  for (size_t row = rows; row-- > 0;) {
    if (static_cast<size_t>(end - next) < 2 * lanes) return kRansNoRoom;
    for (size_t lane = lanes; lane-- > 0;) {
      const uint32_t entry = table.frequency_start[codes[row * lanes + lane]];
      states[lane] = EncodeStep(states[lane], entry, &next);
    }
  }
  return static_cast<size_t>(next - words) / 2;
}

void ReverseWords(uint8_t* words, size_t count) {
  const size_t done = HWY_DYNAMIC_DISPATCH(ReverseOuterWords)(words, count);
  uint8_t* front = words + 2 * done;
  uint8_t* back = words + 2 * (count - done);
  for (; back - front >= 4; front += 2) {
    uint16_t a, b;
    back -= 2;
    std::memcpy(&a, front, 2);
    std::memcpy(&b, back, 2);
    std::memcpy(front, &b, 2);
    std::memcpy(back, &a, 2);
  }
}

}  // namespace elastiquant
#endif  // HWY_ONCE
