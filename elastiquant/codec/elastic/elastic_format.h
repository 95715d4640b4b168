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
#include "elastiquant/codec/tiled_payload.h"
#include "elastiquant/coding/index_coding.h"

namespace elastiquant {

// The numbers travel in frames, and so must never change.
enum class Rounding : uint8_t { kStochastic = 0, kDither = 1 };

struct ElasticFormat {
  int bits = 4;  // the size of a code, its sign included: 2 to 8
  LevelFamily family = LevelFamily::kExponential;
  NormOrder norm;
  Rounding rounding = Rounding::kStochastic;  // kDither goes with uniform levels only
  IndexCoding coding = IndexCoding::kFixed;
  uint32_t bucket = 512;  // coordinates that share a norm, or 0 if all of the message do
  float p = 0;            // used by kExponential only
  LevelSet levels;        // what family, bits and p say, or the explicit list
  // The tensors that buckets end with, if they do. They are stored elsewhere.
  std::span<const TensorStart> tensors = {};

  // Returns the levels that a frame lists, which are all except a 0. There are none if the
  // family says what the levels are.
  std::span<const float> listed() const {
    if (!IsListed(family)) return {};
    return levels.span().subspan(family == LevelFamily::kExplicit ? 1 : 0);
  }
};

// Returns the largest norm under which every value stays finite. Dithered values exceed the
// norm by half a step.
float LargestNorm(const ElasticFormat& format);

// Returns Codec::NmseBound, which is the VarianceBound of the levels, or the exact variance of
// the dither.
double ElasticNmseBound(const ElasticFormat& format, size_t elements);
// Returns the same for any levels that level_fit.h may choose. They have a zero, or maybe none
// if the family is kZeroless. More levels than 0 and 1 can only help, and a first level l_0 in
// place of zero adds up to l_0^2 a coordinate.
double FittedNmseBound(const ElasticFormat& format, size_t elements);

// The flag of a frame whose payload begins with the sizes of its tensors: how many there are,
// and the number of coordinates of each, which is never 0. Each of these numbers is a u32.
inline constexpr uint8_t kElasticByTensor = 1;
constexpr size_t TensorListBytes(size_t tensors) {
  return tensors == 0 ? 0 : (1 + tensors) * sizeof(uint32_t);
}
void WriteTensorList(std::span<const TensorStart> tensors, size_t elements,
                     std::span<uint8_t> payload);
// Returns how many tensors the list has, which is at least one and at most `elements`, the
// number of the frame's coordinates. Fails with kCorruptData.
Result<size_t> ReadTensorCount(std::span<const uint8_t> payload, size_t elements);
// Reads the list into `tensors`, which is as long as ReadTensorCount says. Fails with
// kCorruptData.
Status ReadTensorList(std::span<const uint8_t> payload, size_t elements, size_t bucket,
                      std::span<TensorStart> tensors);

inline constexpr size_t kElasticParameterBytes = 20;
std::array<uint8_t, kElasticParameterBytes> WriteElasticParameters(const ElasticFormat& format);

// Checks all parameters, and makes the levels. Those of an explicit list stand at the beginning
// of `payload`. Fails with kCorruptData.
Result<ElasticFormat> ReadElasticParameters(std::span<const uint8_t> parameters,
                                            std::span<const uint8_t> payload);

// Where everything stands in the payload, or behind the list of tensors if the payload begins
// with one: [levels f32] [tile ends u64] [norms f32] [tiles' codes]. The levels are there only
// if they are listed, and the tile ends only in coded forms.
class ElasticLayout : public TileGeometry {
 public:
  ElasticLayout(const ElasticFormat& format, size_t elements);

  // These are offsets in the payload.
  size_t levels_at() const { return 0; }
  size_t norms_at() const { return places_.table_end(); }
  const TilePlaces& places() const { return places_; }

 private:
  TilePlaces PlacesOf(const ElasticFormat& format) const;

  TilePlaces places_;
};

}  // namespace elastiquant
