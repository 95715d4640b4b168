// A network in this process's memory, for tests and simulations: its workers are threads. It
// can be slow and lossy, and the workers on it can die, freeze, or lose their way to one
// another.
#pragma once

#include <memory>

#include "elastiquant/net/memory_wire.h"
#include "elastiquant/net/network.h"

namespace elastiquant {

// Thread-safe. Its destruction ends all waits of those still on it with an error.
class MemoryNetwork {
 public:
  explicit MemoryNetwork(const MemoryFaults& faults = {});
  ~MemoryNetwork();
  MemoryNetwork(const MemoryNetwork&) = delete;
  MemoryNetwork& operator=(const MemoryNetwork&) = delete;

  // The network as worker `rank` sees it: the faults below strike those who use it. Workers
  // that no fault shall strike may share one of kUnnamedHost.
  std::shared_ptr<Network> At(int rank = kUnnamedHost);

  // As SIGKILL does to a process: its connections close, its store is gone, and its own calls
  // fail.
  void Kill(int rank);
  // As SIGSTOP and SIGCONT: no call of the worker returns, nor does one to its store.
  void Freeze(int rank);
  void Thaw(int rank);
  // Messages between these two are lost for ever, though both still reach the store.
  void Cut(int a, int b);

 private:
  class End;
  struct Parts;
  const std::shared_ptr<Parts> parts_;
};

}  // namespace elastiquant
