#include <algorithm>
#include <cstring>

#include "elastiquant/kernels/dither/dither_few_lanes.h"
#include "elastiquant/kernels/dither/dither_kernels.h"
#include "elastiquant/kernels/dither/dither_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/dither/dither_encode.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elastiquant/kernels/dither/dither_encode-inl.h"
#include "elastiquant/kernels/dither/dither_encode_avx3_dl-inl.h"
#include "elastiquant/kernels/dither/dither_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
template <class Use>
bool WithEncoder(const DitherModel& model, int id, const Use& use) {
  return use([&](const int32_t* indices, DitherWriter* writer) {
    const DitherShape full{kDitherBlock / kDitherRow, 0xFFFF};
    return scalar::EncodeDitherSymbols(indices, full, model, id, writer);
  });
}
void FullPlane(const int32_t* indices, size_t p, uint8_t* plane) {
  for (size_t place = 0; place < kDitherBlock; ++place) {
    const uint32_t bit = static_cast<uint32_t>(indices[DitherTurn(place)]) >> p & 1;
    plane[place / 8] = static_cast<uint8_t>(plane[place / 8] | bit << place % 8);
  }
}
#else

// Bit p of all indices of a block, in order of places; `plane` is 0.
void FullPlane(const int32_t* indices, size_t p, uint8_t* plane) {
  const DI32 di;
  const auto bit = hn::Set(di, 1 << p);
  for (size_t place = 0; place < kDitherBlock; place += kEncoderLanes) {
    const auto turned = hn::LoadU(di, indices + DitherTurn(place + kEncoderLanes - 1));
    uint8_t bits[8];
    hn::StoreMaskBits(di, hn::TestBit(hn::Reverse(di, turned), bit), bits);
    if constexpr (kEncoderLanes >= 8) {
      std::memcpy(plane + place / 8, bits, kEncoderLanes / 8);
    } else {
      plane[place / 8] = static_cast<uint8_t>(plane[place / 8] | bits[0] << place % 8);
    }
  }
}
#endif  // HWY_TARGET == HWY_SCALAR

// The symbols of a block with all coordinates, lanes being a multiple of 32; true if there are
// escapes.
bool EncodeFullBlock(const int32_t* indices, const DitherModel& model, int id,
                     DitherWriter* writer) {
  return WithEncoder(model, id,
                     [&](const auto& encode) HWY_ATTR { return encode(indices, writer); });
}

// Quantises a block and encodes its symbols; the indices are for the rest. scale.pre is 1.
template <class Encode>
HWY_INLINE bool EncodeValues(const float* values, LaneKeys keys, uint32_t first,
                             DitherScale scale, const Encode& encode, int32_t* indices,
                             DitherWriter* writer) {
  constexpr size_t kRows = kDitherBlock / kDitherRow;
#if HWY_TARGET == HWY_AVX3_DL
  // The same, but without waiting for the indices to be stored.
  RandomVectors<DRowU> random(DRowU(), {keys, first});
  hn::Vec<DRowI> turned[kRows];
  QuantizeTurned<kRows, false>(values, random, scale, turned);
  __m512i row[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    row[r] = turned[kRows - 1 - r].raw;
    _mm512_store_si512(indices + r * kDitherRow, row[r]);
  }
  return encode.Rows(row, writer);
#else
  QuantizeRows(values, kRows, keys, first, scale, indices);
  return encode(indices, writer);
#endif
}

void EncodeRun(const float* values, const DitherRun& run, LaneKeys keys, DitherScale scale,
               const DitherModel& model, int id, DitherWriter* writer) {
  constexpr DitherShape kFull{kDitherBlock / kDitherRow, 0xFFFF};
  const bool raw = DitherClassOf(id).raw > 0;
  WithEncoder(model, id, [&](const auto& encode) HWY_ATTR {
    alignas(64) int32_t indices[kDitherBlock];
    for (size_t i = run.count; i-- > 0;) {
      if (run.soon != nullptr) {
        for (size_t at = 0; at < kDitherBlock; at += 16) {
          hwy::Prefetch(run.soon + i * kDitherBlock + at);
        }
      }
      const size_t at = run.blocks[i] * kDitherBlock;
      const uint32_t first = run.first + static_cast<uint32_t>(at);
      const bool escaped =
          EncodeValues(values + at, keys, first, scale, encode, indices, writer);
      if (escaped || raw) scalar::AppendDitherRest(indices, kFull, id, escaped, writer);
    }
    return true;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(EncodeFullBlock);
HWY_EXPORT(FullPlane);
HWY_EXPORT(EncodeRun);

namespace {

// Seven bits a byte, the lowest first, with the highest bit set in all but the last; the last
// byte comes first, as a decoder goes backwards.
void AppendEscape(int32_t high, int reach, DitherWriter* writer) {
  const int32_t size = high < 0 ? -high : high;
  uint32_t excess = 2 * static_cast<uint32_t>(size - reach - 1) + (high < 0);
  uint8_t bytes[5];
  size_t count = 0;
  for (; excess >= 128; excess >>= 7) bytes[count++] = static_cast<uint8_t>(excess | 128);
  bytes[count++] = static_cast<uint8_t>(excess);
  while (count > 0) *writer->bytes++ = bytes[--count];
}

void AppendEscapes(const int32_t* indices, DitherShape shape, const DitherClass& c,
                   DitherWriter* writer) {
  for (size_t place = shape.rows * kDitherRow; place-- > 0;) {
    if (!scalar::IsPresent(shape, place / kDitherRow, place % kDitherRow)) continue;
    const int32_t high = indices[DitherTurn(place)] >> c.raw;
    if (high < -c.reach || high > c.reach) AppendEscape(high, c.reach, writer);
  }
}

void AppendPlanes(const int32_t* indices, DitherShape shape, size_t raw, DitherWriter* writer) {
  if (raw == 0) return;
  const size_t bytes = (scalar::CountPresent(shape) + 7) / 8;
  uint8_t places[kDitherBlock];
  const size_t count = shape.full() ? 0 : scalar::ListPresent(shape, places);
  for (size_t p = raw; p-- > 0; writer->bytes += bytes) {
    std::memset(writer->bytes, 0, bytes);
    if (shape.full()) HWY_DYNAMIC_DISPATCH(FullPlane)(indices, p, writer->bytes);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bit = static_cast<uint32_t>(indices[DitherTurn(places[i])]) >> p & 1;
      uint8_t& byte = writer->bytes[i / 8];
      byte = static_cast<uint8_t>(byte | bit << i % 8);
    }
  }
}

}  // namespace

void scalar::AppendDitherRest(const int32_t* indices, DitherShape shape, int id, bool escaped,
                              DitherWriter* writer) {
  const DitherClass c = DitherClassOf(id);
  if (escaped) AppendEscapes(indices, shape, c, writer);
  AppendPlanes(indices, shape, c.raw, writer);
}

namespace {

bool EncodeSymbols(const int32_t* indices, DitherShape shape, const DitherModel& model, int id,
                   DitherWriter* writer) {
  if (!shape.full()) return scalar::EncodeDitherSymbols(indices, shape, model, id, writer);
  if (writer->lanes <= kMostFewLanes) {
    return EncodeFewLanes(indices, DitherStarts(model, id), DitherClassOf(id), writer);
  }
  return HWY_DYNAMIC_DISPATCH(EncodeFullBlock)(indices, model, id, writer);
}

}  // namespace

void EncodeDitherIndices(const int32_t* indices, DitherShape shape, const DitherModel& model,
                         int id, DitherWriter* writer) {
  const bool escaped = EncodeSymbols(indices, shape, model, id, writer);
  scalar::AppendDitherRest(indices, shape, id, escaped, writer);
}

void EncodeDitherRun(const float* values, const DitherRun& run, LaneKeys keys,
                     DitherScale scale, const DitherModel& model, int id,
                     DitherWriter* writer) {
  if (writer->lanes >= 2 * kDitherRow && scale.pre == 1) {
    return HWY_DYNAMIC_DISPATCH(EncodeRun)(values, run, keys, scale, model, id, writer);
  }
  constexpr DitherShape kFull{kDitherBlock / kDitherRow, 0xFFFF};
  const bool few = writer->lanes <= kMostFewLanes;
  const DitherStarts starts(model, id);
  int32_t indices[kDitherBlock];
  for (size_t i = run.count; i-- > 0;) {
    const size_t at = run.blocks[i] * kDitherBlock;
    const uint32_t first = run.first + static_cast<uint32_t>(at);
    DitherQuantize(values + at, kDitherBlock, keys, first, scale, indices);
    const bool escaped = few ? EncodeFewLanes(indices, starts, DitherClassOf(id), writer)
                             : EncodeSymbols(indices, kFull, model, id, writer);
    scalar::AppendDitherRest(indices, kFull, id, escaped, writer);
  }
}

}  // namespace elastiquant
#endif  // HWY_ONCE
