// Parts of what a frame of positions and values decodes to, as frames of their own: what a
// worker sends to the owners of the chunks of a bucket, in a scatter-reduce.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/sparse/sparse_format.h"

namespace elastiquant {

// Values of 8 and 4 bits share norms, which cannot be cut between them.
constexpr bool HasSparseParts(int bits) { return bits == kExactBits || bits >= 16; }

// The most bytes of a part of n values.
size_t MaxSparsePartBytes(size_t n);

// Writes a frame of `values`, a part of what the frame `whole` decodes to, and returns its
// size. It decodes to the same bits as that part (but for the sign of zeros, which goes), and
// takes as many bits a value. Fails with kUnsupported if `whole` is no frame of a sparse codec
// whose values have 32 or 16 bits or are exact, as those of chunks may be.
Result<size_t> EncodeSparsePart(std::span<const uint8_t> whole, std::span<const float> values,
                                Workspace& work, std::span<uint8_t> frame);

}  // namespace elastiquant
