// What `train --algorithm` names: what workers send in a step, and how the weights move by it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "elastiquant/base/status.h"

namespace elastiquant {

enum class AlgorithmKind : uint8_t {
  kAllReduce,    // every step moves the weights by the mean gradient
  kOneBitAdam,   // one_bit_adam.cc
  kZeroOneAdam,  // the same
  kDemo,         // demo.cc
};

struct Algorithm {
  AlgorithmKind kind = AlgorithmKind::kAllReduce;
  int64_t freeze = 0;  // steps after which Adam's second moments no longer change
  int64_t growth = 0;  // updates of the second moments until they become half as frequent
  double decay = 0;    // how much of its momentum DeMo keeps in a step
  int64_t block = 0, top = 0;  // DeMo's blocks have block x block values, of which top are sent

  bool is_adam() const {
    return kind == AlgorithmKind::kOneBitAdam || kind == AlgorithmKind::kZeroOneAdam;
  }
  // Whether some steps send their values uncompressed.
  bool has_exact_steps() const { return is_adam(); }
  // Returns whether step `step`, counted from 0, does.
  bool IsExact(int64_t step) const;
};

// Parses NAME[:KEY=VALUE,...]: "allreduce" ("ddp" means the same), "onebit-adam:freeze=100",
// "zeroone-adam:growth=16,freeze=N" (without `freeze` it never stops) or
// "demo:decay=0.999,block=64,top=32". Fails with kInvalidArgument, which lists what is valid.
Result<Algorithm> ParseAlgorithm(std::string_view text);

// Returns the codec that was published with it, or an empty text for "allreduce", which has
// none.
std::string_view CodecOf(AlgorithmKind kind);

}  // namespace elastiquant
