#include "elastiquant/collective/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "elastiquant/collective/liveness.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kRefusedKey[] = "refused";

std::string PresentKey(int rank) { return "present/" + std::to_string(rank); }

// The workers that wait for this one see why it will not come.
Status Refuse(Store& store, const std::string& why) {
  EQ_RETURN_IF_ERROR(store.CompareSet(kRefusedKey, "", why).status());
  return InvalidArgument(why);
}

Status CheckIn(Store& store, const CommunicatorOptions& options) {
  const std::string rank = std::to_string(options.rank);
  const std::string size = std::to_string(options.world_size);
  EQ_ASSIGN_OR_RETURN(const std::string agreed, store.CompareSet("world_size", "", size));
  if (agreed != size) {
    return Refuse(store, "worker " + rank + " was told of a world of " + size +
                             " workers, others of one of " + agreed +
                             ": start all with the same world size");
  }
  EQ_ASSIGN_OR_RETURN(const int64_t claims, store.Increment("claims/" + rank));
  if (claims > 1) {
    return Refuse(store, "two workers claim rank " + rank +
                             ": give each its own rank, and each job its own port");
  }
  EQ_RETURN_IF_ERROR(Liveness::Announce(store, options.rank));
  return store.Set(PresentKey(options.rank), "1");
}

Result<std::string> Missing(Store& store, int world_size) {
  std::string missing;
  for (int r = 0; r < world_size; ++r) {
    EQ_ASSIGN_OR_RETURN(const bool present, store.Exists(PresentKey(r)));
    if (!present) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
  }
  return missing;
}

Status AwaitAll(Store& store, const CommunicatorOptions& options) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<size_t>(options.world_size));
  for (int r = 0; r < options.world_size; ++r) keys.push_back(PresentKey(r));
  const auto deadline = Clock::now() + options.connect_timeout;
  for (;;) {
    EQ_ASSIGN_OR_RETURN(const bool all, store.WaitFor(keys, milliseconds(250)));
    if (all) return {};
    EQ_ASSIGN_OR_RETURN(const bool refused, store.Exists(kRefusedKey));
    if (refused) {
      EQ_ASSIGN_OR_RETURN(const auto why, store.Get({kRefusedKey}));
      return InvalidArgument(why[0]);
    }
    if (Clock::now() < deadline) continue;
    EQ_ASSIGN_OR_RETURN(const std::string missing, Missing(store, options.world_size));
    return Unavailable(
        "of " + std::to_string(options.world_size) + " workers these did not come within " +
        std::to_string(options.connect_timeout.count() / 1000) + " s: " + missing);
  }
}

}  // namespace

Status Rendezvous(Store& store, const CommunicatorOptions& options) {
  EQ_RETURN_IF_ERROR(CheckIn(store, options));
  return AwaitAll(store, options);
}

}  // namespace elastiquant
