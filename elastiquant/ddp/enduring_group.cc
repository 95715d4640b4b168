#include "elastiquant/ddp/enduring_group.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "elastiquant/base/contains.h"

namespace elastiquant {
namespace {

constexpr std::chrono::milliseconds kLook{20};

}  // namespace

Result<std::unique_ptr<EnduringGroup>> EnduringGroup::Connect(CommunicatorOptions options,
                                                              bool goes_on) {
  std::unique_ptr<EnduringGroup> group(new EnduringGroup);
  group->patience_ = 2 * options.timeout;
  if (goes_on && options.world_size > 1) {
    CrewOptions crew{.job = std::move(options)};
    crew.may_return = false;
    EQ_ASSIGN_OR_RETURN(group->crew_, Crew::Start(crew));
    return group;
  }
  options.on_peer_lost = [](const Status&) {};  // waits then end with the verdict
  EQ_ASSIGN_OR_RETURN(group->comm_, Communicator::Connect(options));
  return group;
}

std::vector<int> EnduringGroup::lost() const {
  std::vector<int> lost;
  for (int w = 0; crew_ != nullptr && w < crew_->workers(); ++w) {
    if (!Contains(crew_->group(), w)) lost.push_back(w);
  }
  return lost;
}

// A worker that leaves before the others may say so to its neighbours before its group breaks.
bool EnduringGroup::AwaitBreak() const {
  const auto end = std::chrono::steady_clock::now() + patience_;
  while (!crew_->is_broken() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kLook);
  }
  return crew_->is_broken();
}

Status EnduringGroup::Persist(const Ties& ties, const std::function<Status()>& act) {
  for (;;) {
    Status status = crew_ ? crew_->Check() : Status();
    if (status.ok()) status = act();
    const bool may_go_on = crew_ != nullptr && status.code() == StatusCode::kUnavailable;
    if (!may_go_on || !AwaitBreak()) return status;
    EQ_RETURN_IF_ERROR(Regroup(ties));
  }
}

Status EnduringGroup::Regroup(const Ties& ties) {
  for (;;) {
    ties.leave();
    const Result<bool> regrouped = crew_->Regroup(/*at_boundary=*/false);
    if (!regrouped.ok()) {
      return Unavailable("this worker cannot go on: " + regrouped.status().message() +
                         " (workers meet at worker 0, which must not be lost)");
    }
    if (!*regrouped) return Unavailable("the other workers have ended the run");
    comm().SetActivity("going on in another group of workers");
    Status status = ties.join(crew_->group());
    if (status.ok()) status = CatchUp();
    if (status.ok() || !crew_->is_broken()) return status;  // or one more was lost meanwhile
  }
}

// Collective. Whoever has not come to the end of an act gets what it has ended with from one
// that has.
Status EnduringGroup::CatchUp() {
  EQ_ASSIGN_OR_RETURN(const auto ended, comm().AllGather(ended_));
  const auto first = std::ranges::max_element(ended);
  furthest_ = *first;
  if (std::ranges::all_of(ended, [&](uint64_t e) { return e == *first; })) return {};
  const auto root = static_cast<int>(first - ended.begin());
  EQ_ASSIGN_OR_RETURN(const auto sizes, comm().AllGather(agreed_.size()));
  // The last to have ended is an act, and not the barrier behind it.
  const bool lacks_bytes = ended_ < furthest_ && furthest_ % 2 == 1;
  Bytes bytes(sizes[static_cast<size_t>(root)]);
  if (comm().rank() == root) bytes = agreed_;
  if (!bytes.empty()) EQ_RETURN_IF_ERROR(comm().Broadcast(root, bytes));
  if (lacks_bytes) agreed_ = std::move(bytes);
  return {};
}

// It has two stages, the act and a barrier: nobody goes on before all have the bytes, so that
// whoever lacks them can be given them.
Result<EnduringGroup::Bytes> EnduringGroup::Agree(const Ties& ties,
                                                  const std::function<Result<Bytes>()>& act) {
  if (!goes_on()) return act();
  const uint64_t before = ended_;
  const auto make = [&]() -> Status {
    if (furthest_ <= before) {
      EQ_ASSIGN_OR_RETURN(agreed_, act());
    }
    ended_ = before + 1;
    return {};
  };
  const auto meet = [&]() -> Status {
    if (furthest_ <= before + 1) EQ_RETURN_IF_ERROR(comm().Barrier());
    ended_ = before + 2;
    return {};
  };
  EQ_RETURN_IF_ERROR(Persist(ties, make));
  EQ_RETURN_IF_ERROR(Persist(ties, meet));
  return std::exchange(agreed_, {});
}

}  // namespace elastiquant
