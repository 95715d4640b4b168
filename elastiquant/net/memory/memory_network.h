// A network in this process's memory, for tests and simulations: its workers are threads. It
// can be slow and lossy, and the workers on it can die, freeze, or lose their way to one
// another.
#pragma once

#include <memory>

#include "elastiquant/net/memory/memory_wire.h"
#include "elastiquant/net/network.h"

namespace elastiquant {

// Thread-safe. When it is destroyed, all waits of those who are still on it end with an error.
class MemoryNetwork {
 public:
  explicit MemoryNetwork(const MemoryFaults& faults = {});
  ~MemoryNetwork();
  MemoryNetwork(const MemoryNetwork&) = delete;
  MemoryNetwork& operator=(const MemoryNetwork&) = delete;

  // Returns the network as worker `rank` sees it: the faults below strike those who use it.
  // Workers that no fault shall strike may share the one of kUnnamedHost.
  std::shared_ptr<Network> At(int rank = kUnnamedHost);

  // Kills the worker as SIGKILL kills a process: its connections close, its store is gone, and
  // its own calls fail.
  void Kill(int rank);
  // Stop the worker and let it go on, as SIGSTOP and SIGCONT do. While it is frozen none of its
  // calls returns, nor does any call to its store.
  void Freeze(int rank);
  void Thaw(int rank);
  // Loses all messages between these two workers from now on, though both still reach the
  // store.
  void Cut(int a, int b);

 private:
  class End;
  struct Parts;
  const std::shared_ptr<Parts> parts_;
};

}  // namespace elastiquant
