// Full blocks of the dither codec whose states are too few to be the lanes of vectors, as in
// short messages: one coordinate at a time, but without branches and divisions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/dither/dither_kernels.h"

namespace elastiquant {

inline constexpr size_t kMostFewLanes = 16;

// Where the symbols of one class start, by lane: row[s] of all symbols s, and 4096 behind them,
// up to a whole number of vectors.
class DitherStarts {
 public:
  static constexpr size_t kVector = 16;

  DitherStarts(const DitherModel& model, int id);
  // j: a lane, below 16.
  const uint16_t* Row(size_t j) const { return starts_ + (j >> shift_) * stride_; }
  size_t padded() const { return stride_ - 1; }  // a multiple of kVector

 private:
  uint16_t starts_[16 * (kVector + 1)];
  size_t stride_;
  int shift_;
};

// scalar::EncodeDitherSymbols of a full block; writer->lanes <= kMostFewLanes.
bool EncodeFewLanes(const int32_t* indices, const DitherStarts& starts, const DitherClass& c,
                    DitherWriter* writer);

// scalar::DecodeDitherSymbols of a full block, but that words may run out unnoticed: up to
// kDitherReadAhead is read, and words > bytes afterwards. Returns whether there are escapes.
bool DecodeFewLanes(DitherReader* reader, const DitherStarts& starts, const DitherClass& c,
                    int32_t* indices);

}  // namespace elastiquant
