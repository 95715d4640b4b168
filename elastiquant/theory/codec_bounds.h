// What a codec may cost a message: the figures to hold a measurement against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/elastic_format.h"

namespace elastiquant::theory {

struct CodecBounds {
  // E|Q(v)-v|^2 <= variance |v|^2 whatever v is (Codec::NmseBound). Absent if none is known.
  std::optional<double> variance;
  // The exact worst case, WorstCaseVariance, at most `variance`. Elastic codecs with stochastic
  // rounding only; under dither `variance` is exact for every bucket without it.
  std::optional<double> worst_case;
  // What FindWorstVector attains; with `worst_case` it brackets the truth.
  std::optional<double> attained;
  // Bits of a frame, everything included: its expectation is at most this for every message
  // (elastic codecs under Elias), or no message exceeds it (all others).
  double frame_bits = 0;
};

// Of messages of n values, n >= 1. Rounding in fp32 may add some 1e-6 of |v|^2 to a measured
// variance. Elastic codecs take 1 to 50 ms, and less if `attained` is not wanted; the result
// depends on nothing but the codec and n, so it can be kept.
CodecBounds BoundsOf(const Codec& codec, size_t n, bool want_attained = false);

// The same of a frame whose levels were fitted to its message (`levels=fit`): the bounds of the
// levels that it lists, for messages or runs of n values. None of other frames.
std::optional<ElasticFormat> FittedFormat(const Codec& codec, std::span<const uint8_t> frame);
CodecBounds BoundsOf(const ElasticFormat& format, size_t n, bool want_attained = false);

// The variance to plan with: the worst case if it is known, else the bound, else none.
std::optional<double> PlannedVariance(const CodecBounds& bounds);

}  // namespace elastiquant::theory
