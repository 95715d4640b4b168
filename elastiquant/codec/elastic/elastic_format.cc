#include "elastiquant/codec/elastic/elastic_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "elastiquant/base/bytes.h"
#include "elastiquant/codec/elastic/level_fit.h"
#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

struct ElasticFields {
  uint8_t bits, family, norm, rounding, coding, listed;
  uint16_t reserved;
  uint32_t bucket;
  float p, q;
};
static_assert(sizeof(ElasticFields) == kElasticParameterBytes);

Status CheckFields(const ElasticFields& f) {
  if (f.bits < 2 || f.bits > 8) return BadParameters("bits is not 2 to 8");
  if (f.family > static_cast<uint8_t>(LevelFamily::kZeroless)) {
    return BadParameters("the level family is unknown");
  }
  if (f.norm > 3) return BadParameters("the norm is unknown");
  if (f.rounding > 1) return BadParameters("the rounding is unknown");
  if (f.coding > 2) return BadParameters("the index coding is unknown");
  if (f.reserved != 0) return BadParameters("a reserved byte is not zero");
  const auto family = static_cast<LevelFamily>(f.family);
  if (f.rounding == static_cast<uint8_t>(Rounding::kDither) &&
      family != LevelFamily::kUniform) {
    return BadParameters("dither goes with uniform levels only");
  }
  if (IsListed(family) != (f.listed != 0)) {
    return BadParameters("the number of listed levels does not fit the level family");
  }
  if (family != LevelFamily::kExponential && f.p != 0) return BadParameters("p is not zero");
  if (f.norm == static_cast<uint8_t>(NormKind::kLq)) {
    if (!(std::isfinite(f.q) && f.q >= 1)) {
      return BadParameters("the order of the norm is not >= 1");
    }
  } else if (f.q != 0) {
    return BadParameters("the order of the norm is not zero");
  }
  return Status::Ok();
}

Result<LevelSet> LevelsOf(const ElasticFields& f, std::span<const uint8_t> payload) {
  switch (static_cast<LevelFamily>(f.family)) {
    case LevelFamily::kUniform:
      return UniformLevels(f.bits);
    case LevelFamily::kExponential:
      return ExponentialLevels(f.bits, f.p);
    case LevelFamily::kExplicit:
    case LevelFamily::kZeroless:
      break;
  }
  std::array<float, 256> listed;
  const size_t bytes = f.listed * sizeof(float);
  if (payload.size() < bytes) return BadParameters("the payload ends inside the level list");
  std::memcpy(listed.data(), payload.data(), bytes);
  const std::span<const float> list(listed.data(), f.listed);
  return f.family == static_cast<uint8_t>(LevelFamily::kZeroless)
             ? LevelsWithoutZero(f.bits, list)
             : ExplicitLevels(f.bits, list);
}

double LongestBucket(const ElasticFormat& format, size_t elements) {
  return static_cast<double>(format.bucket == 0 ? elements
                                                : std::min<size_t>(format.bucket, elements));
}

}  // namespace

float LargestNorm(const ElasticFormat& format) {
  const float max = std::numeric_limits<float>::max();
  return format.rounding == Rounding::kDither ? max / 2 : max;
}

double ElasticNmseBound(const ElasticFormat& format, size_t elements) {
  const double d = LongestBucket(format, elements);
  const double q = OrderOf(format.norm);
  if (format.rounding == Rounding::kDither) {
    // A third of a gap's middle: an error that is uniform over a step, whatever is rounded.
    return GridVarianceBound(1.0 / (InnerLevels(format.bits) + 1), d, q) / 3;
  }
  return VarianceBound(format.levels, d, q);
}

double FittedNmseBound(const ElasticFormat& format, size_t elements) {
  const double d = LongestBucket(format, elements);
  const double q = OrderOf(format.norm);
  LevelSet ends;
  ends.values = {0, 1};
  ends.count = 2;
  const double around = format.family == LevelFamily::kZeroless
                            ? GridVarianceBound(2 * LargestFirstLevel(format.bits), d, q)
                            : 0;
  return VarianceBound(ends, d, q) + around;
}

std::array<uint8_t, kElasticParameterBytes> WriteElasticParameters(
    const ElasticFormat& format) {
  ElasticFields f{};
  f.bits = static_cast<uint8_t>(format.bits);
  f.family = static_cast<uint8_t>(format.family);
  f.norm = static_cast<uint8_t>(format.norm.kind);
  f.rounding = static_cast<uint8_t>(format.rounding);
  f.coding = static_cast<uint8_t>(format.coding);
  f.listed = static_cast<uint8_t>(format.listed().size());
  f.bucket = format.bucket;
  f.p = format.p;
  f.q = static_cast<float>(format.norm.q);
  std::array<uint8_t, kElasticParameterBytes> bytes;
  std::memcpy(bytes.data(), &f, sizeof(f));
  return bytes;
}

Result<ElasticFormat> ReadElasticParameters(std::span<const uint8_t> parameters,
                                            std::span<const uint8_t> payload) {
  if (parameters.size() != sizeof(ElasticFields)) {
    return BadParameters("there are " + std::to_string(parameters.size()) + " bytes, not " +
                         std::to_string(sizeof(ElasticFields)));
  }
  ElasticFields f;
  std::memcpy(&f, parameters.data(), sizeof(f));
  EQ_RETURN_IF_ERROR(CheckFields(f));
  Result<LevelSet> levels = LevelsOf(f, payload);
  if (!levels.ok()) return BadParameters(levels.status().message());
  ElasticFormat format;
  format.bits = f.bits;
  format.family = static_cast<LevelFamily>(f.family);
  format.norm = {static_cast<NormKind>(f.norm), f.q};
  format.rounding = static_cast<Rounding>(f.rounding);
  format.coding = static_cast<IndexCoding>(f.coding);
  format.bucket = f.bucket;
  format.p = f.p;
  format.levels = *levels;
  return format;
}

void WriteTensorList(std::span<const TensorStart> tensors, size_t elements,
                     std::span<uint8_t> payload) {
  const auto write = [&](size_t at, size_t value) {
    const auto number = static_cast<uint32_t>(value);
    std::memcpy(payload.data() + at * sizeof(number), &number, sizeof(number));
  };
  write(0, tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t end = i + 1 < tensors.size() ? tensors[i + 1].begin : elements;
    write(i + 1, end - tensors[i].begin);
  }
}

Result<size_t> ReadTensorCount(std::span<const uint8_t> payload, size_t elements) {
  uint32_t count = 0;
  if (payload.size() >= sizeof(count)) std::memcpy(&count, payload.data(), sizeof(count));
  if (count == 0 || payload.size() < TensorListBytes(count)) {
    return BadPayload("the list of tensors is empty or cut short");
  }
  // Memory is allocated for the list before it is read.
  if (count > elements) return BadPayload("there are more tensors than values");
  return count;
}

Status ReadTensorList(std::span<const uint8_t> payload, size_t elements, size_t bucket,
                      std::span<TensorStart> tensors) {
  TensorStart next;
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint32_t size;
    std::memcpy(&size, payload.data() + (i + 1) * sizeof(size), sizeof(size));
    if (size == 0) return BadPayload("a tensor is empty");
    tensors[i] = next;
    next.begin += size;
    next.first_bucket += bucket == 0 ? 1 : CeilDivide(size, bucket);
  }
  if (next.begin == elements) return Status::Ok();
  return BadPayload("the tensors have " + std::to_string(next.begin) + " values, not " +
                    std::to_string(elements));
}

ElasticLayout::ElasticLayout(const ElasticFormat& format, size_t elements)
    : TileGeometry(format.bucket, format.coding != IndexCoding::kFixed, elements,
                   format.tensors),
      places_(PlacesOf(format)) {}

TilePlaces ElasticLayout::PlacesOf(const ElasticFormat& format) const {
  const auto most = [&](size_t size) {
    return MaxIndexBytes(format.coding, size, format.bits, CeilDivide(size, run()));
  };
  const TileTable table =
      format.coding == IndexCoding::kFixed ? TileTable::kNone : TileTable::kEnds;
  const size_t table_at = format.listed().size_bytes();
  const size_t tiles_at =
      table_at + TilePlaces::TableBytes(table, tiles()) + buckets() * sizeof(float);
  const size_t last = tiles() == 0 ? 0 : most(Tile(tiles() - 1).size);
  return {table, table_at, tiles_at, tiles(), most(tile()), last};
}

}  // namespace elastiquant
