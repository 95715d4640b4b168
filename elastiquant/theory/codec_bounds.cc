#include "elastiquant/theory/codec_bounds.h"

#include <algorithm>

#include "elastiquant/codec/elastic/elastic.h"
#include "elastiquant/codec/elastic/elastic_decode.h"
#include "elastiquant/theory/code_length.h"
#include "elastiquant/theory/worst_case.h"
#include "elastiquant/theory/worst_vector.h"

namespace elastiquant::theory {

CodecBounds BoundsOf(const Codec& codec, size_t n, bool want_attained) {
  if (const auto format = ElasticFormatFor(codec, n)) {
    return BoundsOf(*format, n, want_attained);
  }
  CodecBounds bounds;
  bounds.variance = codec.NmseBound(n);
  bounds.frame_bits = 8.0 * static_cast<double>(codec.MaxFrameBytes(n));
  return bounds;
}

CodecBounds BoundsOf(const ElasticFormat& format, size_t n, bool want_attained) {
  CodecBounds bounds;
  bounds.variance = ElasticNmseBound(format, n);
  bounds.frame_bits = ExpectedFrameBits(format, n);
  if (format.rounding != Rounding::kStochastic) return bounds;
  // Errors and squares of buckets add up, and the longest bucket has the worst case.
  const double d =
      static_cast<double>(format.bucket == 0 ? n : std::min<size_t>(format.bucket, n));
  const double q = OrderOf(format.norm);
  bounds.worst_case = std::min(WorstCaseVariance(format.levels, d, q), *bounds.variance);
  if (want_attained) bounds.attained = FindWorstVector(format.levels, d, q).variance;
  return bounds;
}

std::optional<ElasticFormat> FittedFormat(const Codec& codec, std::span<const uint8_t> frame) {
  if (ElasticFormatFor(codec, 0)) return std::nullopt;
  return ListedFormat(frame);
}

std::optional<double> PlannedVariance(const CodecBounds& bounds) {
  return bounds.worst_case ? bounds.worst_case : bounds.variance;
}

}  // namespace elastiquant::theory
