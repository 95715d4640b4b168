// Figures for what a codec may cost a message, which measurements can be held against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/elastic_format.h"

namespace elastiquant::theory {

// Bounds for messages of a given length.
struct CodecBounds {
  // E|Q(v)-v|^2 <= variance |v|^2 whatever v is (Codec::NmseBound). It is absent if no bound is
  // known.
  std::optional<double> variance;
  // The exact worst case, WorstCaseVariance, which is at most `variance`. It is there for
  // elastic codecs with stochastic rounding only; under dither some bucket attains `variance`
  // itself, and under the L2 norm every bucket of full length does.
  std::optional<double> worst_case;
  // What FindWorstVector attains. Together with `worst_case` it brackets the truth.
  std::optional<double> attained;
  // The bits of a frame, everything included. For elastic codecs under Elias its expectation is
  // at most this for every message; for all others no message exceeds it.
  double frame_bits = 0;
};

// Returns the bounds for messages of n values, n >= 1. Rounding in fp32 may add some 1e-6 of
// |v|^2 to a measured variance. Elastic codecs take 1 to 50 ms, and less if `attained` is not
// wanted; the result depends on nothing but the codec and n, so it can be kept.
CodecBounds BoundsOf(const Codec& codec, size_t n, bool want_attained = false);

// FittedFormat returns the format of a frame whose levels were fitted to its message
// (`levels=fit`), and none for other frames. BoundsOf then returns the bounds of the levels
// that the frame lists, for messages or runs of n values.
std::optional<ElasticFormat> FittedFormat(const Codec& codec, std::span<const uint8_t> frame);
CodecBounds BoundsOf(const ElasticFormat& format, size_t n, bool want_attained = false);

// Returns the variance to plan with: the worst case if it is known, else the bound if there is
// one.
std::optional<double> PlannedVariance(const CodecBounds& bounds);

}  // namespace elastiquant::theory
