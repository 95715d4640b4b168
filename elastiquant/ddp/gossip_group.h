// The workers of a GossipEngine: one group for good, which ends when a worker is lost, or a
// crew (net/crew.h), in which those that are left go on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/gossip_exchange.h"
#include "elastiquant/layers/model_mean.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/net/crew.h"

namespace elastiquant {

// Not thread-safe, but for comm() as Communicator is.
class GossipGroup {
 public:
  // Collective: returns when all workers have connected. Fails as Communicator::Connect does.
  static Result<std::unique_ptr<GossipGroup>> Connect(CommunicatorOptions options,
                                                      bool goes_on);

  Communicator& comm() { return crew_ ? crew_->comm() : *comm_; }
  bool goes_on() const { return crew_ != nullptr; }
  // Returns the workers, by the ranks that they had at the beginning, that are gone for good.
  std::vector<int> lost() const;

  // Returns what `act` returns. In a crew, `act` is called again in the next group if a worker
  // was lost meanwhile, so that it must go on where it was, as the exchange's calls do. Fails
  // with Unavailable, too, if the others have gone on without this worker.
  Status Persist(GossipExchange& exchange, const std::function<Status()>& act);

  // Collective: the mean of all workers' values. If workers are lost meanwhile, all that are
  // left get the same.
  Result<ModelMean> Mean(GossipExchange& exchange, std::span<const float> own);

 private:
  GossipGroup() = default;
  bool WaitsForBreak() const;
  Status Regroup(GossipExchange& exchange);
  Status CatchUp();

  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<Crew> crew_;
  std::chrono::milliseconds patience_{};  // until a worker that has left counts as lost
  // Collective acts of Mean that have ended here. Others may have ended one more, or one fewer:
  // then the mean is what they have.
  uint64_t ended_ = 0;
  uint64_t furthest_ = 0;  // that any worker has ended
  ModelMean mean_;
};

}  // namespace elastiquant
