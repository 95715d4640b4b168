#include "elastiquant/codec/sparse/chunk_geometry.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

// Kept values of a tile. It has costs of its own, some 150 bytes in all, that should not count,
// and there should be enough tiles for threads.
constexpr size_t kTileKept = 16384;

bool IsCut(const ChunkRun& run, size_t side) {
  return side > 1 && run.rows % side == 0 && run.cols % side == 0;
}

size_t CountChunks(const ChunkRun& run, const ChunkRule& rule, size_t side) {
  // Both are 32 bits wide, and their sum may need more.
  if (run.cols == 0) return (size_t{run.rows} + rule.chunk - 1) / rule.chunk;
  return (run.rows / side) * (run.cols / side);
}

}  // namespace

size_t ChunkRule::Side() const {
  const auto root = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(chunk))));
  return root * root == chunk ? root : 0;
}

std::vector<ChunkRun> RunsOf(std::span<const TensorShape> tensors, const ChunkRule& rule) {
  const size_t side = rule.Side();
  std::vector<ChunkRun> runs;
  for (const TensorShape& shape : tensors) {
    if (shape.rows == 0 || shape.cols == 0) continue;
    ChunkRun run{static_cast<uint32_t>(shape.rows), static_cast<uint32_t>(shape.cols)};
    if (!IsCut(run, side)) run = {static_cast<uint32_t>(shape.rows * shape.cols), 0};
    if (!runs.empty() && runs.back().cols == run.cols) {
      runs.back().rows += run.rows;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

Status PlaceRuns(std::span<const ChunkRun> runs, const ChunkRule& rule, size_t elements,
                 std::span<PlacedRun> placed) {
  const size_t side = rule.Side();
  size_t begin = 0, chunk = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    const ChunkRun& run = runs[r];
    if (run.rows == 0 || (run.cols != 0 && !IsCut(run, side))) {
      return BadPayload("a matrix is not one of whole blocks");
    }
    if (run.size() > elements - begin) return BadPayload("its runs are longer than it");
    placed[r] = {run, begin, chunk};
    begin += run.size();
    chunk += CountChunks(run, rule, side);
  }
  if (begin != elements) return BadPayload("its runs are shorter than it");
  return Status::Ok();
}

ChunkGeometry::ChunkGeometry(const ChunkRule& rule, std::span<const PlacedRun> runs)
    : rule_(rule),
      side_(rule.Side()),
      runs_(runs),
      tile_chunks_(std::max<size_t>(1, kTileKept / rule.kept)) {
  if (runs.empty()) return;
  const PlacedRun& last = runs.back();
  elements_ = last.begin + last.run.size();
  chunks_ = last.first_chunk + CountChunks(last.run, rule, side_);
}

size_t ChunkGeometry::KeptOf(size_t tile) const {
  size_t kept = 0;
  VisitTile(tile, [&](const Chunk& chunk) { kept += chunk.kept; });
  return kept;
}

size_t ChunkGeometry::RunAt(size_t chunk) const {
  const auto behind = std::ranges::upper_bound(runs_, chunk, {}, &PlacedRun::first_chunk);
  return static_cast<size_t>(std::distance(runs_.begin(), behind)) - 1;
}

Chunk ChunkGeometry::ChunkOf(const PlacedRun& placed, size_t number) const {
  const ChunkRun& run = placed.run;
  if (run.cols == 0) {
    const size_t from = number * rule_.chunk;
    const size_t size = std::min<size_t>(rule_.chunk, run.rows - from);
    return {placed.begin + from, 1, size, 0, rule_.KeptOf(size)};
  }
  const size_t across = run.cols / side_;
  const size_t row = number / across * side_, col = number % across * side_;
  return {placed.begin + row * run.cols + col, side_, side_, run.cols, rule_.kept};
}

}  // namespace elastiquant
