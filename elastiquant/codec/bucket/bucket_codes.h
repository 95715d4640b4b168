// The wire format that the bucketed quantisers share, and its decoder: each bucket has a few
// floats (a scale, or its levels), each coordinate a digit, and a value is always
// scale * table[digit] (docs/frame-format.md, "bucket codes").
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "elastiquant/codec/registry.h"
#include "elastiquant/codec/tile_geometry.h"
#include "elastiquant/codec/tiled_payload.h"
#include "elastiquant/coding/index_coding.h"

namespace elastiquant {

// What a frame of one of these codecs says of itself:
//   kLevels      a bucket sends its levels, lowest first; the scale is 1
//   kTernary     a scale; the table is 0, 1, -1
//   kSign        a scale; -1, 1
//   kZeroless    a scale; the table that `family` and `p` say, lowest first
//   kInnovation  a scale; (2 digit - (radix - 1)) / (radix - 1)
// Stable numbers: they travel in frames.
enum class ZerolessLevels : uint8_t { kExponential = 0, kUniform = 1, kListed = 2 };

struct BucketFormat {
  CodecId codec{};
  int radix = 2;                             // IsDigitBase; of kInnovation with kRans, any
  IndexCoding coding = IndexCoding::kFixed;  // kFixed: digits; or kRans, with radix > 2
  uint32_t bucket = 0;                       // coordinates that share side data; 0: all
  ZerolessLevels family = ZerolessLevels::kExponential;  // kZeroless only
  float p = 0;                                           // its exponential family only
  // By digits; of kLevels nothing.
  alignas(64) std::array<float, 256> table{};

  // Floats of side data a bucket.
  size_t side() const { return codec == CodecId::kLevels ? static_cast<size_t>(radix) : 1; }
  // Floats that a listed table takes at the front of the payload: those above 0.
  size_t listed() const {
    return codec == CodecId::kZeroless && family == ZerolessLevels::kListed
               ? static_cast<size_t>(radix) / 2
               : 0;
  }
  // Bits of a digit under kRans.
  int bits() const;
};

// Fills format->table from codec, radix, family and p; for a listed family from `upper`, its
// radix / 2 levels above 0, which must increase up to 1. kInvalidArgument says what is wrong.
Status FillTable(std::span<const float> upper, BucketFormat* format);

inline constexpr size_t kBucketParameterBytes = 12;
std::array<uint8_t, kBucketParameterBytes> WriteBucketParameters(const BucketFormat& format);

// Payload: [listed levels f32] [tile ends u64] [side data f32] [tiles' digits]; the first only
// for a listed table, the second only with kRans.
class BucketLayout : public TileGeometry {
 public:
  BucketLayout(const BucketFormat& format, size_t elements);

  // An offset in the payload.
  size_t side_at() const { return places_.table_end(); }
  const TilePlaces& places() const { return places_; }

 private:
  TilePlaces PlacesOf(const BucketFormat& format) const;

  TilePlaces places_;
};

// Decodes frames of all of these codecs, after checking everything in them.
Status DecodeBucketCodes(const FrameView& frame, const DecodeSink& sink, Workspace& work);

// sums += table[digit], of a frame whose scales are `scales` (kCorruptData if they are not).
// sums.size() must be the frame's element count.
Status AddUnscaled(const FrameView& frame, std::span<const float> scales, Workspace& work,
                   std::span<float> sums);

}  // namespace elastiquant
