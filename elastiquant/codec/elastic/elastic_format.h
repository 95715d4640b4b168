// What a frame of the elastic codec says of itself, and where everything stands in its payload
// (docs/frame-format.md, "elastic").
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/bucket_norm.h"
#include "elastiquant/codec/levels.h"
#include "elastiquant/codec/tile_geometry.h"
#include "elastiquant/coding/index_coding.h"

namespace elastiquant {

// Stable numbers: they travel in frames.
enum class Rounding : uint8_t { kStochastic = 0, kDither = 1 };

struct ElasticFormat {
  int bits = 4;  // of a code, its sign included: 2 to 8
  LevelFamily family = LevelFamily::kExponential;
  NormOrder norm;
  Rounding rounding = Rounding::kStochastic;  // kDither only with uniform levels
  IndexCoding coding = IndexCoding::kFixed;
  uint32_t bucket = 512;  // coordinates that share a norm; 0: all of the message
  float p = 0;            // kExponential only
  LevelSet levels;        // what family, bits and p say, or the explicit list
  // Of messages whose buckets end with their tensors; they live elsewhere.
  std::span<const TensorStart> tensors = {};

  // The levels that a frame lists, all but a 0; none if the family says what they are.
  std::span<const float> listed() const {
    if (!IsListed(family)) return {};
    return levels.span().subspan(family == LevelFamily::kExplicit ? 1 : 0);
  }
};

// The largest norm that every value stays finite under: dithered ones exceed it by half a step.
float LargestNorm(const ElasticFormat& format);

// See Codec::NmseBound; VarianceBound of the levels, or the exact variance of the dither.
double ElasticNmseBound(const ElasticFormat& format, size_t elements);
// The same for any levels that level_fit.h may choose, with a zero or (family kZeroless) maybe
// without: more levels than 0 and 1 only help, and a first level l_0 in place of zero adds up
// to l_0^2 a coordinate.
double FittedNmseBound(const ElasticFormat& format, size_t elements);

// The flag of a frame whose payload begins with the sizes of its tensors: their number, and the
// coordinates of each, none of them 0 (u32 each).
inline constexpr uint8_t kElasticByTensor = 1;
constexpr size_t TensorListBytes(size_t tensors) {
  return tensors == 0 ? 0 : (1 + tensors) * sizeof(uint32_t);
}
void WriteTensorList(std::span<const TensorStart> tensors, size_t elements,
                     std::span<uint8_t> payload);
// How many tensors the list has: at least one. Fails with kCorruptData.
Result<size_t> ReadTensorCount(std::span<const uint8_t> payload);
// `tensors` is as long as that says.
Status ReadTensorList(std::span<const uint8_t> payload, size_t elements, size_t bucket,
                      std::span<TensorStart> tensors);

inline constexpr size_t kElasticParameterBytes = 20;
std::array<uint8_t, kElasticParameterBytes> WriteElasticParameters(const ElasticFormat& format);

// Checks everything, and makes the levels; those of an explicit list stand at the beginning of
// `payload`. Fails with kCorruptData.
Result<ElasticFormat> ReadElasticParameters(std::span<const uint8_t> parameters,
                                            std::span<const uint8_t> payload);

// Payload, behind the list of tensors if there is one: [levels f32] [tile ends u64] [norms f32]
// [tiles' codes]; the first for listed levels only, the second for coded forms only.
class ElasticLayout : public TileGeometry {
 public:
  ElasticLayout(const ElasticFormat& format, size_t elements);

  // Offsets in the payload.
  size_t levels_at() const { return 0; }
  size_t ends_at() const { return ends_at_; }
  size_t norms_at() const { return norms_at_; }
  size_t codes_at() const { return codes_at_; }
  // Where a tile's codes are if all before it have the most bytes possible; kFixed has exactly
  // these. tile <= tiles().
  size_t WorstCodesAt(size_t tile) const;
  size_t WorstBytes(size_t tile) const { return WorstCodesAt(tile + 1) - WorstCodesAt(tile); }

 private:
  size_t MaxTileBytes(size_t size) const;

  IndexCoding coding_;
  int bits_;
  size_t ends_at_, norms_at_, codes_at_;
  size_t full_tile_bytes_, last_tile_bytes_;
};

}  // namespace elastiquant
