// Which coordinates of a message are kept. All selections hold for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"

namespace elastiquant {

// Ascending positions and what stands there; both lie in the codec's shared scratch of the
// workspace, as everything below does.
struct SparseSelection {
  std::span<uint32_t> positions;
  std::span<float> values;
};

// The k largest magnitudes; among equal ones the first. Zeros are never kept, so that there may
// be fewer than k. Fails with kNonFinite if a value is NaN or infinite.
Result<SparseSelection> SelectTop(std::span<const float> values, size_t k, Workspace& work);

// About k of the largest magnitudes: those above a threshold from a sample, as in DGC (Lin et
// al., ICLR 2018, section 3.1 of its appendix). If it lets more than `most` through, the k
// largest of them; if fewer than `least`, a lower threshold is tried and then SelectTop.
Result<SparseSelection> SelectSampled(std::span<const float> values, size_t k, size_t least,
                                      size_t most, Workspace& work);

// All magnitudes of at least `threshold` > 0.
Result<SparseSelection> SelectAtLeast(std::span<const float> values, float threshold,
                                      Workspace& work);

// All magnitudes of at least `magnitude` > 0, and each smaller one v with the probability
// |v| / magnitude.
Result<SparseSelection> SelectLikely(std::span<const float> values, float magnitude,
                                     LaneKeys keys, Workspace& work);

// The positions of the k smallest of RandomBits(keys, i), i < n, which are all different.
std::span<uint32_t> SelectDrawn(LaneKeys keys, size_t n, size_t k, Workspace& work);
// And the values there. Fails with kNonFinite if any value is NaN or infinite.
Result<SparseSelection> SelectDrawn(std::span<const float> values, LaneKeys keys, size_t k,
                                    Workspace& work);

// kNonFinite with the first coordinate that is NaN or infinite, or ok.
Status CheckFinite(std::span<const float> values, Workspace& work);

}  // namespace elastiquant
