#include "elastiquant/codec/elastic_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "elastiquant/base/bytes.h"

namespace elastiquant {
namespace {

struct Fields {
  uint8_t bits, family, norm, rounding, coding, listed;
  uint16_t reserved;
  uint32_t bucket;
  float p, q;
};
static_assert(sizeof(Fields) == kElasticParameterBytes);

Status Bad(const std::string& what) {
  return CorruptData("frame parameter check failed: " + what);
}

Status CheckFields(const Fields& f) {
  if (f.bits < 2 || f.bits > 8) return Bad("bits is not 2 to 8");
  if (f.family > 2) return Bad("the level family is unknown");
  if (f.norm > 3) return Bad("the norm is unknown");
  if (f.rounding > 1) return Bad("the rounding is unknown");
  if (f.coding > 2) return Bad("the index coding is unknown");
  if (f.reserved != 0) return Bad("a reserved byte is not zero");
  const auto family = static_cast<LevelFamily>(f.family);
  if (f.rounding == static_cast<uint8_t>(Rounding::kDither) &&
      family != LevelFamily::kUniform) {
    return Bad("dither goes with uniform levels only");
  }
  if ((family == LevelFamily::kExplicit) != (f.listed != 0)) {
    return Bad("the number of listed levels does not fit the level family");
  }
  if (family != LevelFamily::kExponential && f.p != 0) return Bad("p is not zero");
  if (f.norm == static_cast<uint8_t>(NormKind::kLq)) {
    if (!(std::isfinite(f.q) && f.q >= 1)) return Bad("the order of the norm is not >= 1");
  } else if (f.q != 0) {
    return Bad("the order of the norm is not zero");
  }
  return Status::Ok();
}

Result<LevelSet> LevelsOf(const Fields& f, std::span<const uint8_t> payload) {
  switch (static_cast<LevelFamily>(f.family)) {
    case LevelFamily::kUniform:
      return UniformLevels(f.bits);
    case LevelFamily::kExponential:
      return ExponentialLevels(f.bits, f.p);
    case LevelFamily::kExplicit:
      break;
  }
  std::array<float, 256> upper;
  const size_t bytes = f.listed * sizeof(float);
  if (payload.size() < bytes) return Bad("the payload ends inside the level list");
  std::memcpy(upper.data(), payload.data(), bytes);
  return ExplicitLevels(f.bits, {upper.data(), f.listed});
}

}  // namespace

float LargestNorm(const ElasticFormat& format) {
  const float max = std::numeric_limits<float>::max();
  return format.rounding == Rounding::kDither ? max / 2 : max;
}

double ElasticNmseBound(const ElasticFormat& format, size_t elements) {
  const double d = static_cast<double>(
      format.bucket == 0 ? elements : std::min<size_t>(format.bucket, elements));
  const double q = OrderOf(format.norm);
  if (format.rounding == Rounding::kDither) {
    // A third of a gap's middle: an error that is uniform over a step, whatever is rounded.
    return GridVarianceBound(1.0 / (InnerLevels(format.bits) + 1), d, q) / 3;
  }
  return VarianceBound(format.levels, d, q);
}

std::array<uint8_t, kElasticParameterBytes> WriteElasticParameters(
    const ElasticFormat& format) {
  Fields f{};
  f.bits = static_cast<uint8_t>(format.bits);
  f.family = static_cast<uint8_t>(format.family);
  f.norm = static_cast<uint8_t>(format.norm.kind);
  f.rounding = static_cast<uint8_t>(format.rounding);
  f.coding = static_cast<uint8_t>(format.coding);
  if (format.family == LevelFamily::kExplicit) {
    f.listed = static_cast<uint8_t>(format.levels.count - 1);
  }
  f.bucket = format.bucket;
  f.p = format.p;
  f.q = static_cast<float>(format.norm.q);
  std::array<uint8_t, kElasticParameterBytes> bytes;
  std::memcpy(bytes.data(), &f, sizeof(f));
  return bytes;
}

Result<ElasticFormat> ReadElasticParameters(std::span<const uint8_t> parameters,
                                            std::span<const uint8_t> payload) {
  if (parameters.size() != sizeof(Fields)) {
    return Bad("there are " + std::to_string(parameters.size()) + " bytes, not " +
               std::to_string(sizeof(Fields)));
  }
  Fields f;
  std::memcpy(&f, parameters.data(), sizeof(f));
  EQ_RETURN_IF_ERROR(CheckFields(f));
  Result<LevelSet> levels = LevelsOf(f, payload);
  if (!levels.ok()) return Bad(levels.status().message());
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

ElasticLayout::ElasticLayout(const ElasticFormat& format, size_t elements)
    : TileGeometry(format.bucket, format.coding != IndexCoding::kFixed, elements),
      coding_(format.coding),
      bits_(format.bits) {
  const bool listed = format.family == LevelFamily::kExplicit;
  ends_at_ = listed ? (format.levels.count - 1) * sizeof(float) : 0;
  norms_at_ = ends_at_ + (coding_ == IndexCoding::kFixed ? 0 : tiles() * sizeof(uint64_t));
  codes_at_ = norms_at_ + buckets() * sizeof(float);
  full_tile_bytes_ = MaxTileBytes(tile());
  last_tile_bytes_ = tiles() == 0 ? 0 : MaxTileBytes(elements - (tiles() - 1) * tile());
}

size_t ElasticLayout::MaxTileBytes(size_t size) const {
  return MaxIndexBytes(coding_, size, bits_, CeilDivide(size, run()));
}

size_t ElasticLayout::WorstCodesAt(size_t tile) const {
  if (tile < tiles() || tile == 0) return codes_at_ + tile * full_tile_bytes_;
  return codes_at_ + (tiles() - 1) * full_tile_bytes_ + last_tile_bytes_;
}

}  // namespace elastiquant
