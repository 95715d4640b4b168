// Codes the positions of what is kept of chunks: ascending numbers below the chunk's length,
// and how many there are in each chunk is known. The zeros between them (a gap) are cut in two:
// the low bits follow as they are, and the rest makes a code of a few bits under rANS with a
// table for each call. Of a number of coordinates that is drawn at random from a chunk this
// costs about .08 bits a position more than log2 of the number of choices: 7.44 bits for 64 of
// 4096. What is clustered costs less.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

// The longest chunk.
inline constexpr size_t kMaxChunk = size_t{1} << 15;

// Returns the most bytes that n positions take, of chunks of at most kMaxChunk.
size_t MaxChunkPositionBytes(size_t n);
// Returns how many bytes of scratch the functions below need for n positions.
constexpr size_t ChunkPositionScratch(size_t n) { return 2 * n; }

// Writes the positions of all chunks, one chunk after the other, and returns the number of
// bytes. The counts add up to positions.size(); out.size() >= MaxChunkPositionBytes(...).
Result<size_t> EncodeChunkPositions(std::span<const uint16_t> counts,
                                    std::span<const uint16_t> positions,
                                    std::span<uint8_t> scratch, std::span<uint8_t> out);

// Fills `positions` with what EncodeChunkPositions has written at the front of `in`, and
// returns how many bytes that is. Those of a chunk are ascending and below kMaxChunk, whatever
// `in` holds. Fails with kCorruptData if it cannot be right.
Result<size_t> DecodeChunkPositions(std::span<const uint8_t> in,
                                    std::span<const uint16_t> counts,
                                    std::span<uint8_t> scratch, std::span<uint16_t> positions);

}  // namespace elastiquant
