// Encodes the symbols of dither blocks where there are no permutations of bytes. This file is
// included once for each SIMD target.
#if defined(ELASTIQUANT_KERNELS_DITHER_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELASTIQUANT_KERNELS_DITHER_ENCODE_INL_H_
#undef ELASTIQUANT_KERNELS_DITHER_ENCODE_INL_H_
#else
#define ELASTIQUANT_KERNELS_DITHER_ENCODE_INL_H_
#endif

#include "elastiquant/kernels/dither/dither_kernels.h"
#include "elastiquant/kernels/rans/rans_encode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_AVX3_DL
// Looks up the entry f | start << 16 of each symbol of a class in each lane.
class EntryTable {
 public:
  HWY_INLINE EntryTable(const DitherModel& model, int id) : class_(DitherClassOf(id)) {
    if (id <= kDitherNarrow) {
      FillNarrow(model.narrow[id][0]);
    } else {
      FillWide(model.wide[id]);
    }
  }

  // Sets `entries` to those of all indices of a block. Returns whether one of them is escaped.
  HWY_INLINE bool LookUp(const int32_t* indices, uint32_t* entries) const {
    const DI32 di;
    const auto reach = hn::Set(di, class_.reach), escape = hn::Set(di, 2 * class_.reach + 1);
    auto escaped = hn::Zero(D32());
    for (size_t turn = 0; turn < kDitherBlock; turn += kEncoderLanes) {
      const auto index = hn::ShiftRightSame(hn::LoadU(di, indices + turn), class_.raw);
      const auto shifted = hn::BitCast(D32(), hn::Add(index, reach));
      const auto symbol = hn::Min(shifted, hn::BitCast(D32(), escape));
      escaped =
          hn::Or(escaped, hn::VecFromMask(D32(), hn::Eq(symbol, hn::BitCast(D32(), escape))));
      const auto place = hn::Add(hn::ShiftLeftSame(hn::BitCast(di, symbol), shift_),
                                 hn::Load(di, places_ + turn % kDitherRow));
      hn::Store(hn::GatherIndex(D32(), entries_, place), D32(), entries + turn);
    }
    return !hn::AllTrue(D32(), hn::Eq(escaped, hn::Zero(D32())));
  }

 private:
  // Fills the table from rows[symbol][j].
  HWY_INLINE void FillNarrow(const uint16_t* rows) {
    const hn::Rebind<uint16_t, D32> d16;
    const size_t size = static_cast<size_t>(class_.symbols()) * kDitherRow;
    shift_ = 4;
    for (int32_t i = 0; i < 16; ++i) places_[i] = 15 - i;
    for (size_t i = 0; i < size; i += kEncoderLanes) {
      const auto start = hn::ShiftRight<4>(hn::PromoteTo(D32(), hn::LoadU(d16, rows + i)));
      const auto end =
          i + kDitherRow < size
              ? hn::ShiftRight<4>(hn::PromoteTo(D32(), hn::LoadU(d16, rows + i + kDitherRow)))
              : hn::Set(D32(), kRansScale);
      hn::Store(hn::Or(hn::Sub(end, start), hn::ShiftLeft<16>(start)), D32(), entries_ + i);
    }
  }
  // Fills the table from starts[bin][symbol].
  HWY_INLINE void FillWide(const uint16_t* starts) {
    constexpr uint32_t kSize = 64;
    for (uint32_t i = 0; i < kSize; ++i) {
      // Behind the last symbol of a bin there is 0, or the next bin's 0; both stand for 4096.
      const uint32_t end = i + 1 < kSize ? starts[i + 1] : 0;
      entries_[i] = ((end - starts[i]) & (kRansScale - 1)) | uint32_t{starts[i]} << 16;
    }
    for (int32_t i = 0; i < 16; ++i) places_[i] = class_.bins == 2 && i < 8 ? 32 : 0;
  }

  DitherClass class_;
  int shift_ = 0;
  alignas(64) int32_t places_[kDitherRow];
  alignas(64) uint32_t entries_[256];
};
// Returns (1 - 2^-22) / f, with a relative error of at most 2^-23.
HWY_INLINE hn::Vec<DF> Reciprocal(hn::Vec<DF> f) {
  constexpr float kLess = 1.0f - 0x1p-22f;
#if HWY_TARGET <= HWY_AVX3
  // The instruction gives 14 digits, which one step of Newton's method doubles. Their exact
  // value does not matter.
  const __m512 r = _mm512_rcp14_ps(f.raw);
  return hn::Vec<DF>{_mm512_fmadd_ps(r, _mm512_fnmadd_ps(f.raw, r, _mm512_set1_ps(kLess)), r)};
#else
  return hn::Div(hn::Set(DF(), kLess), f);
#endif
}

// Encodes the symbols of full blocks of one class. Returns whether one of them is an escape.
struct BlockEncoder {
  EntryTable table;
  HWY_INLINE bool operator()(const int32_t* indices, DitherWriter* writer) const {
    const D32 d;
    const DI32 di;
    alignas(64) uint32_t entries[kDitherBlock];
    const bool escaped = table.LookUp(indices, entries);
    uint8_t* words = writer->words;
    for (size_t turn = 0; turn < kDitherBlock; turn += kEncoderLanes) {
      uint32_t* const states = writer->states + (turn & (writer->lanes - 1));
      const V32 entry = hn::Load(d, entries + turn);
      const auto f = hn::ConvertTo(DF(), hn::BitCast(di, hn::And(entry, hn::Set(d, 0xFFFF))));
      hn::Store(StepEncoder(hn::Load(d, states), entry, Reciprocal(f), &words), d, states);
    }
    writer->words = words;
    return escaped;
  }
};

// Returns use(encoder), where `encoder` encodes blocks of class `id`.
template <class Use>
HWY_INLINE bool WithEncoder(const DitherModel& model, int id, const Use& use) {
  return use(BlockEncoder{EntryTable(model, id)});
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
