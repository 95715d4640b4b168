// The communication hook that DDP calls.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <unordered_map>
#include <vector>

#include "elastiquant/ddp/ddp_engine.h"
#include "elastiquant/ddp/ready_hooks.h"

namespace elastiquant {

// Has the engine take back what DDP has discarded of the last step, unless that has been done:
// DDP has left the gradient of a parameter that no worker has used as it was. Must be called
// between steps, by all workers.
void RestoreDiscarded(DdpEngine& engine, const c10d::Reducer& reducer);

// Hands each bucket to the engine, whose parameters are these, in this order, and before that
// offers it each gradient. It holds no GIL and needs none. If a bucket has an unknown
// parameter, its future ends with an error. Before the first bucket of a step it has the engine
// restore what DDP has discarded of the last step, if no forward has: within join() a worker
// that has no data left makes none.
class DdpHook final : public c10d::CommHookInterface {
 public:
  // The reducer must outlive it.
  DdpHook(std::shared_ptr<DdpEngine> engine, const std::vector<at::Tensor>& parameters,
          const c10d::Reducer& reducer);

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  const std::shared_ptr<DdpEngine> engine_;
  std::unordered_map<const c10::TensorImpl*, size_t> index_;
  const c10d::Reducer& reducer_;
  ReadyHooks ready_;
};

}  // namespace elastiquant
