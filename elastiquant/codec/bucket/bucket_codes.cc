#include "elastiquant/codec/bucket/bucket_codes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "elastiquant/kernels/digits.h"

namespace elastiquant {
namespace {

// A table that is its own mirror image: `upper`, the levels above 0, and their negatives.
Status FillMirrored(std::span<const float> upper, BucketFormat* format) {
  const size_t half = upper.size();
  float before = 0;
  for (size_t j = 0; j < half; ++j) {
    // Written so that NaN fails.
    if (!(upper[j] - before >= std::numeric_limits<float>::min())) {
      return InvalidArgument("levels must increase in steps of at least 2^-126, but level " +
                             std::to_string(j + 1) + " does not");
    }
    before = upper[j];
    format->table[half + j] = upper[j];
    format->table[half - 1 - j] = -upper[j];
  }
  if (before != 1) return InvalidArgument("the last level must be 1");
  return Status::Ok();
}

Status FillZeroless(std::span<const float> listed, BucketFormat* format) {
  const size_t half = static_cast<size_t>(format->radix) / 2;
  const float top = static_cast<float>(format->radix - 1);
  std::array<float, 128> upper;
  double level = 1;
  switch (format->family) {
    case ZerolessLevels::kListed:
      return FillMirrored(listed, format);
    case ZerolessLevels::kUniform:
      for (size_t j = 0; j < half; ++j) upper[j] = static_cast<float>(2 * j + 1) / top;
      break;
    case ZerolessLevels::kExponential:
      // By multiplication, so that all machines have the same.
      for (size_t j = half; j-- > 0; level *= static_cast<double>(format->p)) {
        upper[j] = static_cast<float>(level);
      }
      break;
  }
  return FillMirrored({upper.data(), half}, format);
}

}  // namespace

int BucketFormat::bits() const {
  return std::max(2, static_cast<int>(std::bit_width(static_cast<unsigned>(radix - 1))));
}

Status FillTable(std::span<const float> upper, BucketFormat* format) {
  format->table.fill(0);
  const int top = format->radix - 1;
  switch (format->codec) {
    case CodecId::kTernary:
      format->table[1] = 1;
      format->table[2] = -1;
      break;
    case CodecId::kSign:
      format->table[0] = -1;
      format->table[1] = 1;
      break;
    case CodecId::kInnovation:
      for (int k = 0; k <= top; ++k) {
        format->table[static_cast<size_t>(k)] =
            static_cast<float>(2 * k - top) / static_cast<float>(top);
      }
      break;
    case CodecId::kZeroless:
      return FillZeroless(upper, format);
    default:
      break;
  }
  return Status::Ok();
}

BucketLayout::BucketLayout(const BucketFormat& format, size_t elements)
    : TileGeometry(format.bucket, format.coding != IndexCoding::kFixed, elements),
      places_(PlacesOf(format)) {}

TilePlaces BucketLayout::PlacesOf(const BucketFormat& format) const {
  const bool coded = format.coding != IndexCoding::kFixed;
  const auto most = [&](size_t size) {
    return coded ? MaxIndexBytes(format.coding, size, format.bits(), 1)
                 : PackedDigitBytes(size, format.radix);
  };
  const TileTable table = coded ? TileTable::kEnds : TileTable::kNone;
  const size_t table_at = format.listed() * sizeof(float);
  const size_t tiles_at = table_at + TilePlaces::TableBytes(table, tiles()) +
                          buckets() * format.side() * sizeof(float);
  const size_t last = tiles() == 0 ? 0 : most(Tile(tiles() - 1).size);
  return {table, table_at, tiles_at, tiles(), most(tile()), last};
}

}  // namespace elastiquant
