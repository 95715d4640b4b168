// The part of a message that its levels are fitted to.
#pragma once

#include <cstddef>
#include <span>

#include "elastiquant/codec/bucket_norm.h"
#include "elastiquant/codec/elastic/magnitude_histogram.h"

namespace elastiquant {

// Of a long message only so many norms, spread over all of it, are measured.
inline constexpr size_t kMostSampledNorms = 4096;

// Adds a sample of a message to a histogram. Buckets are drawn in proportion to the squares of
// their norms, by which their errors count: a few of them may have most of the message's
// squares. What is drawn depends on the values alone. Buckets whose norm is not finite are left
// out. bucket 0: one bucket of all values. norms: scratch memory for kMostSampledNorms.
void AddSample(std::span<const float> values, NormOrder order, size_t bucket,
               std::span<float> norms, MagnitudeHistogram* histogram);

}  // namespace elastiquant
