// Whether all workers' weights are the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace elastiquant {

// The workers whose hash (by rank) differs from the one that most have, as "1, 3"; of two
// halves, from worker 0's. Empty if all are the same.
std::string OddReplicas(std::span<const uint64_t> hashes);

}  // namespace elastiquant
