// The workers of an engine that may go on when one of them is lost: either one group for good,
// which ends with its first loss, or a crew (net/crew/crew.h), in which those that are left go
// on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/net/crew/crew.h"

namespace elastiquant {

// The section of an engine's state that tells how many workers had been lost when it was saved,
// if there were any.
inline constexpr char kLostSection[] = "step/lost";

// Not thread-safe, but for comm() as Communicator is.
class EnduringGroup {
 public:
  // How the engine lets go of the communicator, whose transfers must have ended then, and how
  // it takes it up again in a group of these workers. `join` is collective.
  struct Ties {
    std::function<void()> leave;
    std::function<Status(const std::vector<int>& workers)> join;
  };

  // Collective: returns when all workers have connected. Fails as Communicator::Connect does.
  static Result<std::unique_ptr<EnduringGroup>> Connect(CommunicatorOptions options,
                                                        bool goes_on);

  Communicator& comm() { return crew_ ? crew_->comm() : *comm_; }
  bool goes_on() const { return crew_ != nullptr; }
  // Returns the workers, by the ranks that they had at the beginning, that are gone for good.
  std::vector<int> lost() const;

  // Returns what `act` returns. In a crew, `act` is called again in the next group if a worker
  // was lost meanwhile: it must go on where it was, or begin anew on all workers alike. Fails
  // with Unavailable, too, if the others have gone on without this worker.
  Status Persist(const Ties& ties, const std::function<Status()>& act);

  // Collective: returns the bytes of an act that ends with the same on all workers. In a crew,
  // if workers are lost meanwhile, all that are left get the same, whether they have come to
  // the end of the act or not. That costs a barrier.
  using Bytes = std::vector<uint8_t>;
  Result<Bytes> Agree(const Ties& ties, const std::function<Result<Bytes>()>& act);

 private:
  EnduringGroup() = default;
  bool AwaitBreak() const;
  Status Regroup(const Ties& ties);
  Status CatchUp();

  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<Crew> crew_;
  std::chrono::milliseconds patience_{};  // until a worker that has left counts as lost
  // Stages of Agree that have ended here, of which it has two. Others may have ended one more,
  // or one fewer.
  uint64_t ended_ = 0;
  uint64_t furthest_ = 0;  // that any worker has ended
  Bytes agreed_;           // after the first stage
};

}  // namespace elastiquant
