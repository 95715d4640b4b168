#include "elastiquant/net/rendezvous.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "elastiquant/net/liveness.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How the rendezvous ends. The first worker that finds out writes it, and it stands for all, so
// that no worker goes on while others have given up waiting for somebody.
constexpr char kOutcomeKey[] = "outcome";
constexpr std::string_view kMet = "met";
// It failed because of what a worker was told, or because one has not come; why follows.
constexpr std::string_view kRefused = "refused: ", kMissing = "missing: ";

constexpr milliseconds kLookAgain{250};

std::string PresentKey(int rank) { return "present/" + std::to_string(rank); }

// The same for processes that share a loopback address: containers may share a machine without.
std::string NetworkName() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat network {};
  char host[256] = "";
  if (!boot.empty() && stat("/proc/self/ns/net", &network) == 0) {
    return boot + "/" + std::to_string(network.st_ino);
  }
  gethostname(host, sizeof(host) - 1);
  return host;
}

Status Meaning(const std::string& outcome) {
  if (outcome.starts_with(kRefused)) return InvalidArgument(outcome.substr(kRefused.size()));
  if (outcome.starts_with(kMissing)) return Unavailable(outcome.substr(kMissing.size()));
  return {};
}

// Returns what stands then.
Status Conclude(Store& store, const std::string& outcome) {
  EQ_ASSIGN_OR_RETURN(const std::string stands, store.CompareSet(kOutcomeKey, "", outcome));
  return Meaning(stands);
}

// The workers that wait for this one see why it will not come.
Status Refuse(Store& store, const std::string& why) {
  EQ_RETURN_IF_ERROR(store.CompareSet(kOutcomeKey, "", std::string(kRefused) + why).status());
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
  if (claims > 1 && options.refuses_alone) {
    return InvalidArgument("another process is " + options.names(options.rank) +
                           " already: give each its own rank, and each job its own port");
  }
  if (claims > 1) {
    return Refuse(store, "two workers claim rank " + rank +
                             ": give each its own rank, and each job its own port");
  }
  EQ_RETURN_IF_ERROR(Liveness::Announce(store, options.rank));
  return store.Set(PresentKey(options.rank), NetworkName());
}

Result<std::string> Missing(Store& store, int world_size) {
  std::string missing;
  for (int r = 0; r < world_size; ++r) {
    EQ_ASSIGN_OR_RETURN(const bool present, store.Exists(PresentKey(r)));
    if (!present) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
  }
  return missing;
}

std::vector<std::string> PresentKeys(int world_size) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<size_t>(world_size));
  for (int r = 0; r < world_size; ++r) keys.push_back(PresentKey(r));
  return keys;
}

Status AwaitAll(Store& store, const CommunicatorOptions& options) {
  const std::vector<std::string> keys = PresentKeys(options.world_size);
  const auto deadline = Clock::now() + options.connect_timeout;
  for (;;) {
    EQ_ASSIGN_OR_RETURN(const bool all, store.WaitFor(keys, kLookAgain));
    if (all) return Conclude(store, std::string(kMet));
    EQ_ASSIGN_OR_RETURN(const bool over, store.Exists(kOutcomeKey));
    if (over) {
      EQ_ASSIGN_OR_RETURN(const auto outcome, store.Get({kOutcomeKey}));
      return Meaning(outcome[0]);
    }
    if (Clock::now() < deadline) continue;
    EQ_ASSIGN_OR_RETURN(const std::string missing, Missing(store, options.world_size));
    if (missing.empty()) continue;
    return Conclude(store, std::string(kMissing) + "of " + std::to_string(options.world_size) +
                               " workers these did not come within " +
                               std::to_string(options.connect_timeout.count() / 1000) +
                               " s: " + missing);
  }
}

Result<Meeting> Meet(Store& store, const CommunicatorOptions& options) {
  Status met = CheckIn(store, options);
  if (met.ok()) met = AwaitAll(store, options);
  if (!met.ok()) {
    // If this worker hosts the store, the others have yet to read there why they wait in vain.
    if (options.rank == 0 && !options.store_is_external) {
      std::this_thread::sleep_for(4 * kLookAgain);
    }
    return met;
  }
  EQ_ASSIGN_OR_RETURN(const auto networks, store.Get(PresentKeys(options.world_size)));
  const auto same = [&](const std::string& network) { return network == networks[0]; };
  return Meeting{std::ranges::all_of(networks, same)};
}

}  // namespace

Result<Meeting> Rendezvous(const std::shared_ptr<Store>& store,
                           const CommunicatorOptions& options) {
  CommunicatorOptions mine = options;
  mine.store = nullptr;  // which must end with this worker, and not with a thread left behind
  return AskStore(options, [store, mine] { return Meet(*store, mine); });
}

Status StoreIsSilent(const CommunicatorOptions& options) {
  return Unavailable("the rendezvous store at " + options.store_host + ":" +
                     std::to_string(options.store_port) + " does not answer: " +
                     (options.store_is_external ? "its process" : "worker 0, which hosts it,") +
                     " may have frozen or lost its network; end it, and start all again");
}

}  // namespace elastiquant
