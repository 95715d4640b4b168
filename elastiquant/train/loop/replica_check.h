// Checks whether all workers' weights are the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace elastiquant {

// Returns the ranks whose hash differs from the one that most have; none if all are the same.
// If as many have rank 0's hash as any other, that one counts.
std::vector<int> OddReplicas(std::span<const uint64_t> hashes);

}  // namespace elastiquant
