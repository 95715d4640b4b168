// Checks whether all workers' weights are the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace elastiquant {

// Returns the workers whose hash (by rank) differs from the one that most have, as "1, 3", or
// an empty string if all are the same. If as many have worker 0's hash as any other, that one
// counts.
std::string OddReplicas(std::span<const uint64_t> hashes);

}  // namespace elastiquant
