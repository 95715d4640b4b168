#include "elastiquant/codec/sparse/chunk_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "elastiquant/base/bytes.h"
#include "elastiquant/coding/chunk_positions.h"
#include "elastiquant/coding/fixed.h"
#include "elastiquant/coding/rans.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/pack.h"
#include "elastiquant/kernels/sparse/largest.h"

namespace elastiquant {
namespace {

// The first byte of a tile.
constexpr uint8_t kCountsAreFull = 0, kCountsAreListed = 1;
constexpr size_t kRestBytes = 3;  // of an exact value, without its exponent

constexpr uint16_t kLeastBadBf16 = 0x7F80;

// The sign and the bits of the mantissa, and the exponent, which is coded.
struct FloatParts {
  uint32_t rest;  // 24 bits
  uint8_t exponent;
};
FloatParts PartsOf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return {(bits & 0x7FFFFF) | (bits >> 31 << 23), static_cast<uint8_t>(bits >> 23 & 0xFF)};
}
float FromParts(uint32_t rest, uint8_t exponent) {
  return std::bit_cast<float>((rest & 0x7FFFFF) | rest >> 23 << 31 | uint32_t{exponent} << 23);
}

size_t MaxValueBytes(int bits, size_t kept) {
  if (bits == 1) return PackedBytes(kept, 1);
  if (bits != kExactChunkBits) return MaxRansBytes(kept, bits);
  return kRestBytes * kept + MaxRansBytes(kept, 8);
}

Result<size_t> WriteCodes(std::span<const uint8_t> codes, int bits, std::span<uint8_t> out) {
  if (bits > 1) return EncodeRans(codes, bits, out);
  PackCodes(codes.data(), codes.size(), 1, out.data());
  return PackedBytes(codes.size(), 1);
}

Status ReadCodes(std::span<const uint8_t> in, int bits, std::span<uint8_t> codes) {
  return bits > 1 ? DecodeRans(in, bits, codes) : DecodeFixed(in, bits, codes);
}

Result<size_t> WriteFloats(std::span<const float> values, std::span<uint8_t> exponents,
                           std::span<uint8_t> out) {
  uint8_t* next = out.data();
  for (size_t i = 0; i < values.size(); ++i) {
    const FloatParts parts = PartsOf(values[i]);
    exponents[i] = parts.exponent;
    std::memcpy(next, &parts.rest,
                sizeof(parts.rest));  // a byte too many, which is overwritten
    next += kRestBytes;
  }
  const size_t rest = kRestBytes * values.size();
  EQ_ASSIGN_OR_RETURN(const size_t coded, EncodeRans(exponents, 8, out.subspan(rest)));
  return rest + coded;
}

// DecodeRans takes at least one byte.
Status ReadFloats(std::span<const uint8_t> in, std::span<uint8_t> exponents,
                  std::span<float> values) {
  const size_t rest_bytes = kRestBytes * values.size();
  if (in.size() < rest_bytes) return BadPayload("the values of a tile are cut short");
  EQ_RETURN_IF_ERROR(DecodeRans(in.subspan(rest_bytes), 8, exponents));
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t rest = 0;  // and a byte of what follows, be it that of the exponents
    std::memcpy(&rest, in.data() + kRestBytes * i, sizeof(rest));
    values[i] = FromParts(rest & 0xFFFFFF, exponents[i]);
  }
  if (AbsMaxBits(values.data(), values.size()) < kNonFiniteBits) return Status::Ok();
  return BadPayload("a value is not finite");
}

void AppendNumbers(std::span<const uint16_t> numbers, uint8_t** next) {
  if (!numbers.empty()) std::memcpy(*next, numbers.data(), numbers.size_bytes());
  *next += numbers.size_bytes();
}

bool TakeNumbers(std::span<const uint8_t>* in, std::span<uint16_t> numbers) {
  if (in->size() < numbers.size_bytes()) return false;
  if (!numbers.empty()) std::memcpy(numbers.data(), in->data(), numbers.size_bytes());
  *in = in->subspan(numbers.size_bytes());
  return true;
}

// One after the other: counts may hold the greatest ones only until they are read.
bool TakeCounts(std::span<const uint8_t>* in, std::span<uint16_t> counts) {
  if (in->size() < counts.size_bytes()) return false;
  for (size_t c = 0; c < counts.size(); ++c) {
    uint16_t count = 0;
    std::memcpy(&count, in->data() + c * sizeof(count), sizeof(count));
    if (count > counts[c]) return false;
    counts[c] = count;
  }
  *in = in->subspan(counts.size_bytes());
  return true;
}

}  // namespace

std::array<uint8_t, kChunkParameterBytes> WriteChunkParameters(const ChunkFormat& format) {
  std::array<uint8_t, kChunkParameterBytes> bytes;
  ByteWriter writer(bytes);
  writer.Write(static_cast<uint8_t>(format.bits));
  writer.Write(std::array<uint8_t, 3>{});
  writer.Write(format.rule.chunk);
  writer.Write(format.rule.kept);
  writer.Write(format.runs);
  return bytes;
}

Result<ChunkFormat> ReadChunkParameters(const FrameView& frame) {
  if (frame.flags != 0 || frame.parameters.size() != kChunkParameterBytes) {
    return BadParameters("chunks have 16 bytes and no flags");
  }
  ByteReader reader(frame.parameters);
  uint8_t bits = 0;
  std::array<uint8_t, 3> reserved{};
  ChunkFormat format;
  reader.Read(&bits);
  reader.Read(&reserved);
  reader.Read(&format.rule.chunk);
  reader.Read(&format.rule.kept);
  reader.Read(&format.runs);
  if (bits > kMostChunkBits || reserved != std::array<uint8_t, 3>{}) {
    return BadParameters("values have 1 to 8 bits, or 0 if they are exact");
  }
  if (format.rule.chunk < 1 || format.rule.chunk > kMaxChunk) {
    return BadParameters("a chunk has 1 to 32768 values");
  }
  if (format.rule.kept < 1 || format.rule.kept > format.rule.chunk) {
    return BadParameters("a chunk keeps at least one value, and no more than it has");
  }
  format.bits = bits;
  return format;
}

TilePlaces ChunkPlaces(const ChunkFormat& format, const ChunkGeometry& geometry) {
  const size_t tiles = geometry.tiles();
  const size_t tiles_at = format.table_at() + TilePlaces::TableBytes(TileTable::kSizes, tiles);
  if (tiles == 0) return {TileTable::kSizes, format.table_at(), tiles_at, 0, 0, 0};
  const size_t last =
      MaxChunkTileBytes(format.bits, geometry.ChunksOf(tiles - 1), geometry.KeptOf(tiles - 1));
  const size_t full =
      tiles == 1 ? last
                 : MaxChunkTileBytes(format.bits, geometry.MostChunks(), geometry.MostKept());
  return {TileTable::kSizes, format.table_at(), tiles_at, tiles, full, last};
}

ChunkBuffers::ChunkBuffers(const ChunkFormat& format, const ChunkGeometry& geometry, int thread,
                           Workspace& work) {
  const size_t chunks = geometry.MostChunks(), kept = geometry.MostKept();
  const size_t most_candidates = LargestScratch(format.rule.chunk);
  const size_t bytes = most_candidates * sizeof(uint32_t) + kept * sizeof(float) +
                       (2 * chunks + kept) * sizeof(uint16_t) + kept +
                       ChunkPositionScratch(kept);
  uint8_t* next = work.Scratch(thread, bytes).data();
  // The widest first, so that each is aligned.
  const auto take = [&]<typename T>(std::span<T>* span, size_t n) {
    *span = {reinterpret_cast<T*>(next), n};
    next += n * sizeof(T);
  };
  take(&candidates, most_candidates);
  take(&values, kept);
  take(&tile.counts, chunks);
  take(&tile.scales, chunks);
  take(&tile.positions, kept);
  take(&tile.codes, kept);
  take(&scratch, ChunkPositionScratch(kept));
}

size_t MaxChunkTileBytes(int bits, size_t chunks, size_t kept) {
  const size_t scales = bits == kExactChunkBits ? 0 : 2 * chunks;
  return 1 + 2 * chunks + scales + MaxChunkPositionBytes(kept) + MaxValueBytes(bits, kept);
}

Result<size_t> WriteChunkTile(const ChunkTile& tile, int bits, bool full,
                              std::span<uint8_t> scratch, std::span<uint8_t> out) {
  uint8_t* next = out.data();
  const auto room = [&] { return out.subspan(static_cast<size_t>(next - out.data())); };
  *next++ = full ? kCountsAreFull : kCountsAreListed;
  if (!full) AppendNumbers(tile.counts, &next);
  if (bits != kExactChunkBits) AppendNumbers(tile.scales, &next);
  EQ_ASSIGN_OR_RETURN(const size_t positions,
                      EncodeChunkPositions(tile.counts, tile.positions, scratch, room()));
  next += positions;
  const auto written = bits == kExactChunkBits
                           ? WriteFloats(tile.values, scratch.first(tile.values.size()), room())
                           : WriteCodes(tile.codes, bits, room());
  EQ_ASSIGN_OR_RETURN(const size_t values, written);
  return static_cast<size_t>(next - out.data()) + values;
}

Status ReadChunkTile(std::span<const uint8_t> in, int bits, std::span<uint8_t> scratch,
                     ChunkTile* tile) {
  if (in.empty()) return BadPayload("a tile is empty");
  const uint8_t form = in[0];
  in = in.subspan(1);
  if (form > kCountsAreListed) return BadPayload("a tile has an unknown form");
  if (form == kCountsAreListed && !TakeCounts(&in, tile->counts)) {
    return BadPayload("a chunk keeps more than it may, or the counts are cut short");
  }
  if (bits != kExactChunkBits) {
    if (!TakeNumbers(&in, tile->scales)) return BadPayload("the scales are cut short");
    if (std::ranges::any_of(tile->scales, [](uint16_t s) { return s >= kLeastBadBf16; })) {
      return BadPayload("a scale is negative or not finite");
    }
  }
  // Counts only get smaller, so that there is room.
  const size_t kept = std::accumulate(tile->counts.begin(), tile->counts.end(), size_t{0});
  tile->positions = tile->positions.first(kept);
  const auto used = DecodeChunkPositions(in, tile->counts, scratch, tile->positions);
  if (!used.ok()) return BadPayload(used.status().message());
  in = in.subspan(*used);
  if (bits == kExactChunkBits) {
    tile->values = tile->values.first(kept);
    return ReadFloats(in, scratch.first(kept), tile->values);
  }
  tile->codes = tile->codes.first(kept);
  return ReadCodes(in, bits, tile->codes);
}

}  // namespace elastiquant
