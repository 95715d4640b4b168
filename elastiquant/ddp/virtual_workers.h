// All workers of a DDP job in one process, for research on one machine: what compress() would
// make of their gradients, without a network.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/ddp/ddp_engine.h"
#include "elastiquant/ddp/ddp_plan.h"
#include "elastiquant/net/memory/memory_network.h"

namespace elastiquant {

// Each worker is a DdpEngine of its own on a network in memory. So codecs, exchanges and what
// is remembered by worker are those of real ones, and bytes are counted as theirs are. Not
// thread-safe. After an error no further mean is made.
class VirtualWorkers {
 public:
  // The options' all_reduce must be null, and they may have no `end`. Fails with
  // InvalidArgument for less than 1 worker or more than `kMostVirtualWorkers`, and as
  // DdpEngine::Create does.
  static Result<std::unique_ptr<VirtualWorkers>> Create(int workers,
                                                        std::vector<DdpParameter> parameters,
                                                        const DdpOptions& options);
  ~VirtualWorkers();
  VirtualWorkers(const VirtualWorkers&) = delete;
  VirtualWorkers& operator=(const VirtualWorkers&) = delete;

  int size() const { return static_cast<int>(engines_.size()); }
  // Returns the number of values of a worker's gradient.
  size_t elements() const { return elements_; }
  // Returns where each parameter's gradient begins in a worker's. They lie in reverse order, in
  // which backward makes them, as they do in DDP's buckets.
  const std::vector<size_t>& offsets() const { return offsets_; }

  // Makes all rows the mean over the workers. `gradients` is fp32 of shape (size(),
  // elements()), contiguous, in the host's memory, and row w is the gradient of worker w. Where
  // a worker has a NaN or infinity, all rows are NaN, as they are in DDP. Fails with
  // InvalidArgument for another shape or type.
  Status AllReduce(const at::Tensor& gradients);

  // The same as DdpEngine's, on all workers. Must be called between means.
  Status SetEpoch(int epoch);
  std::vector<Sections> SaveState();  // by worker
  // Fails with InvalidArgument for another number of states.
  Status LoadState(const std::vector<Sections>& states);

  // What worker 0 does and counts.
  const std::map<std::string, std::string>& exchanges() const;
  DdpStats stats() const;
  void ResetStats();
  std::vector<nlohmann::json> Layers();

 private:
  VirtualWorkers() = default;

  MemoryNetwork network_;
  std::vector<std::shared_ptr<DdpEngine>> engines_;  // by worker
  size_t elements_ = 0;
  std::vector<size_t> offsets_;  // by parameter
  std::vector<size_t> order_;    // the parameters, in that of a row
};

inline constexpr int kMostVirtualWorkers = 64;

}  // namespace elastiquant
