#include "elastiquant/train/loop/reunion.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/json_text.h"

namespace elastiquant {
namespace {

// Collective. Returns what the worker `root` has.
Result<std::vector<uint8_t>> BroadcastBytes(Communicator& comm, int root,
                                            std::vector<uint8_t> bytes) {
  EQ_ASSIGN_OR_RETURN(const auto sizes, comm.AllGather(bytes.size()));
  bytes.resize(sizes[static_cast<size_t>(root)]);
  EQ_RETURN_IF_ERROR(comm.Broadcast(root, bytes));
  return bytes;
}

std::vector<uint8_t> JoinFloats(const std::vector<std::span<float>>& values) {
  std::vector<uint8_t> all;
  for (const std::span<float> v : values) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(v.data());
    all.insert(all.end(), bytes, bytes + v.size_bytes());
  }
  return all;
}

void SplitFloats(std::span<const uint8_t> all, const std::vector<std::span<float>>& values) {
  for (const std::span<float> v : values) {
    std::copy_n(all.begin(), v.size_bytes(), reinterpret_cast<uint8_t*>(v.data()));
    all = all.subspan(v.size_bytes());
  }
}

Status CheckSize(const std::vector<uint8_t>& got, size_t want) {
  if (got.size() == want) return {};
  return Internal("another worker's model has " + std::to_string(got.size()) +
                  " bytes, this one's " + std::to_string(want) +
                  ": start all with the same options");
}

}  // namespace

Result<Reunion> Reunite(Communicator& comm, uint64_t reached, bool is_newcomer,
                        const nlohmann::json& news) {
  EQ_ASSIGN_OR_RETURN(const auto all, comm.AllGather(reached));
  EQ_ASSIGN_OR_RETURN(const auto newcomers, comm.AllGather(is_newcomer ? 1 : 0));
  Reunion reunion{.source = -1};
  for (size_t r = 0; r < all.size(); ++r) {
    if (newcomers[r] != 0) {
      reunion.newcomers.push_back(static_cast<int>(r));
    } else if (reunion.source < 0 || all[r] > reunion.furthest) {
      reunion.source = static_cast<int>(r);
      reunion.furthest = all[r];
    }
  }
  if (reunion.source < 0) return Unavailable("no worker is left that knows the run");
  const std::string text = JsonText(news);
  EQ_ASSIGN_OR_RETURN(const std::vector<uint8_t> told,
                      BroadcastBytes(comm, reunion.source, {text.begin(), text.end()}));
  reunion.news = nlohmann::json::parse(told, nullptr, /*allow_exceptions=*/false);
  if (!reunion.news.is_object()) return Internal("another worker tells nothing of the run");
  return reunion;
}

Status HandOn(Communicator& comm, const Reunion& reunion, bool is_newcomer, Replica& replica,
              RoundRunner& runner) {
  const std::vector<std::span<float>> mine = runner.SharedState();
  EQ_ASSIGN_OR_RETURN(const std::vector<uint8_t> shared,
                      BroadcastBytes(comm, reunion.source, JoinFloats(mine)));
  std::vector<uint8_t> optimizer = replica.CopyOptimizer(), buffers = replica.CopyBuffers();
  EQ_RETURN_IF_ERROR(CheckSize(shared, JoinFloats(mine).size()));
  if (!reunion.newcomers.empty()) {
    EQ_RETURN_IF_ERROR(comm.Broadcast(reunion.source, optimizer));
    EQ_RETURN_IF_ERROR(comm.Broadcast(reunion.source, buffers));
  }
  SplitFloats(shared, mine);
  if (!is_newcomer) return {};
  replica.RestoreOptimizer(optimizer);
  replica.RestoreBuffers(buffers);
  return {};
}

}  // namespace elastiquant
