#include "elastiquant/train/loop/replica_check.h"

#include <map>

namespace elastiquant {

std::vector<int> OddReplicas(std::span<const uint64_t> hashes) {
  std::map<uint64_t, size_t> votes;
  for (uint64_t hash : hashes) ++votes[hash];
  if (votes.size() <= 1) return {};
  uint64_t usual = hashes[0];
  for (const auto& [hash, count] : votes) {
    if (count > votes[usual]) usual = hash;
  }
  std::vector<int> odd;
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    if (hashes[rank] != usual) odd.push_back(static_cast<int>(rank));
  }
  return odd;
}

}  // namespace elastiquant
