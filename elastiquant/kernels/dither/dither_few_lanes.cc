#include "elastiquant/kernels/dither/dither_few_lanes.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "elastiquant/kernels/rans/rans_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/dither/dither_few_lanes.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How many of the starts are not above the slot. All are below 2^15, so signed comparisons do,
// which every target has.
HWY_INLINE size_t CountReached(const uint16_t* row, size_t padded, uint32_t slot) {
#if HWY_TARGET == HWY_SCALAR
  return static_cast<size_t>(std::upper_bound(row, row + padded, slot) - row);
#else
  const hn::CappedTag<int16_t, DitherStarts::kVector> d;
  const auto key = hn::Set(d, static_cast<int16_t>(slot));
  size_t above = 0;
  for (size_t s = 0; s < padded; s += hn::Lanes(d)) {
    const auto starts = hn::LoadU(d, reinterpret_cast<const int16_t*>(row + s));
    above += hn::CountTrue(d, hn::Lt(key, starts));
  }
  return padded - above;
#endif
}

bool DecodeFew(DitherReader* reader, const DitherStarts& starts, const DitherClass& c,
               int32_t* indices) {
  uint32_t states[kMostFewLanes];
  for (size_t s = 0; s < reader->lanes; ++s) states[s] = reader->state(s);
  const uint8_t* words = reader->words;
  size_t last = 0;
  for (size_t place = 0; place < kDitherBlock; ++place) {
    uint32_t& state = states[place & (reader->lanes - 1)];
    const uint32_t slot = state & (kRansScale - 1);
    const uint16_t* const row = starts.Row(place % kDitherRow);
    const size_t symbol = CountReached(row, starts.padded(), slot) - 1;
    last = std::max(last, symbol);
    indices[place] = static_cast<int32_t>(symbol) - c.reach;
    const uint32_t start = row[symbol], frequency = row[symbol + 1] - start;
    const uint32_t x = frequency * (state >> kRansScaleBits) + slot - start;
    // A branch would be foreseen badly: one refill in 16 / bits coordinates.
    uint16_t word;
    std::memcpy(&word, words, sizeof(word));
    const uint32_t refill = x < kRansLow ? 1 : 0;
    state = refill != 0 ? x << 16 | word : x;
    words += 2 * refill;
  }
  reader->words = words;
  for (size_t s = 0; s < reader->lanes; ++s) reader->set_state(s, states[s]);
  return last == 2 * static_cast<size_t>(c.reach) + 1;
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(DecodeFew);

namespace {

constexpr int kQuotientShift = 44;

// x / f = x * kReciprocals[f] >> 44 for x < 2^32 and x < 2^20 f: the product's error is below
// x f < 2^44, and it stays below 2^64.
constexpr std::array<uint64_t, kRansScale + 1> kReciprocals = [] {
  std::array<uint64_t, kRansScale + 1> reciprocals{};
  for (uint64_t f = 1; f <= kRansScale; ++f) {
    reciprocals[f] = ((uint64_t{1} << kQuotientShift) + f - 1) / f;
  }
  return reciprocals;
}();

}  // namespace

DitherStarts::DitherStarts(const DitherModel& model, int id) {
  const DitherClass c = DitherClassOf(id);
  const auto symbols = static_cast<size_t>(c.symbols());
  const size_t rows = c.bins;
  stride_ = (symbols + kVector - 1) / kVector * kVector + 1;
  shift_ = rows == 16 ? 0 : rows == 2 ? 3 : 4;
  std::fill_n(starts_, rows * stride_, uint16_t{kRansScale});
  for (size_t r = 0; r < rows; ++r) {
    uint16_t* const row = starts_ + r * stride_;
    for (size_t s = 0; s < symbols; ++s) {
      row[s] = rows == 16 ? static_cast<uint16_t>(model.narrow[id][s][r] >> 4)
                          : model.wide[id][r * symbols + s];
    }
  }
}

bool EncodeFewLanes(const int32_t* indices, const DitherStarts& starts, const DitherClass& c,
                    DitherWriter* writer) {
  const int32_t reach = c.reach;
  const uint32_t escape = 2u * c.reach + 1;
  const size_t mask = writer->lanes - 1;
  // Copies, as the words might lie anywhere for all that a compiler knows.
  uint32_t states[kMostFewLanes];
  std::copy_n(writer->states, writer->lanes, states);
  uint8_t* words = writer->words;
  uint32_t last = 0;
  for (size_t turn = 0; turn < kDitherBlock; ++turn) {
    const auto shifted = static_cast<uint32_t>((indices[turn] >> c.raw) + reach);
    const uint32_t symbol = std::min(shifted, escape);
    last = std::max(last, symbol);
    const uint16_t* const row = starts.Row(DitherTurn(turn) % kDitherRow) + symbol;
    const uint32_t start = row[0], frequency = row[1] - start;
    const uint32_t full = states[turn & mask];
    const uint32_t emits = full >> 20 >= frequency ? 1 : 0;
    const auto word = static_cast<uint16_t>(full);
    std::memcpy(words, &word, sizeof(word));
    words += 2 * emits;
    const uint32_t x = full >> 16 * emits;
    const auto q = static_cast<uint32_t>(x * kReciprocals[frequency] >> kQuotientShift);
    states[turn & mask] = x + q * (kRansScale - frequency) + start;
  }
  writer->words = words;
  std::copy_n(states, writer->lanes, writer->states);
  return last == escape;
}

bool DecodeFewLanes(DitherReader* reader, const DitherStarts& starts, const DitherClass& c,
                    int32_t* indices) {
  return HWY_DYNAMIC_DISPATCH(DecodeFew)(reader, starts, c, indices);
}

}  // namespace elastiquant
#endif  // HWY_ONCE
