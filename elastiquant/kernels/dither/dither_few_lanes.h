// Codes full blocks of the dither codec whose states are too few to be the lanes of vectors, as
// in short messages. It takes one coordinate at a time, but without branches and divisions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/dither/dither_kernels.h"

namespace elastiquant {

inline constexpr size_t kMostFewLanes = 16;

// The starts of the symbols of one class, by lane. A row has row[s] for all symbols s, and
// behind them 4096 up to a whole number of vectors and once more.
class DitherStarts {
 public:
  static constexpr size_t kVector = 16;

  DitherStarts(const DitherModel& model, int id);
  // Returns the row of lane j < 16.
  const uint16_t* Row(size_t j) const { return starts_ + (j >> shift_) * stride_; }
  // Returns the number of entries of a row without the last one, a multiple of kVector.
  size_t padded() const { return stride_ - 1; }

 private:
  uint16_t starts_[16 * (kVector + 1)];
  size_t stride_;
  int shift_;
};

// Does what scalar::EncodeDitherSymbols does for a full block; writer->lanes <= kMostFewLanes.
bool EncodeFewLanes(const int32_t* indices, const DitherStarts& starts, const DitherClass& c,
                    DitherWriter* writer);

// Does what scalar::DecodeDitherSymbols does for a full block, except that it does not notice
// when words run out: then it reads up to kDitherReadAhead bytes, and words > bytes afterwards.
// Returns whether there are escapes.
bool DecodeFewLanes(DitherReader* reader, const DitherStarts& starts, const DitherClass& c,
                    int32_t* indices);

}  // namespace elastiquant
