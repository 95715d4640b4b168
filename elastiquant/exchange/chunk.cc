#include "elastiquant/exchange/chunk.h"

#include <algorithm>

namespace elastiquant {

Chunk ChunkOf(size_t n, int chunks, int j) {
  const auto count = static_cast<size_t>(chunks);
  // With 16 or more units a chunk, rounding to units unbalances them by at most 1/16.
  const size_t unit = n >= 16 * count * kChunkAlignment ? kChunkAlignment : 1;
  const size_t units = (n + unit - 1) / unit;
  const auto border = [&](size_t k) { return std::min(n, units * k / count * unit); };
  const size_t begin = border(static_cast<size_t>(j));
  return {begin, border(static_cast<size_t>(j) + 1) - begin};
}

}  // namespace elastiquant
