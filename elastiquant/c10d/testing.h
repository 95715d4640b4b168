// Worlds for tests over Gloo. Those in memory are in net/testing.h.
#pragma once

#include <memory>

#include "elastiquant/c10d/gloo_network.h"
#include "elastiquant/c10d/tcp_store.h"
#include "elastiquant/net/testing.h"

namespace elastiquant {

// Returns the one TCP store of a test program, which lives until the program ends.
inline StoreHost& TestTcpStore() {
  static StoreHost* host = HostTcpStore(0, Reach::kAnywhere).value().release();
  return *host;
}

// Returns options for the ranks of one new world on the test program's store.
inline CommunicatorOptions GlooWorldOptions(int world_size) {
  CommunicatorOptions options = WorldOptions(world_size);
  options.network = MakeGlooNetwork();
  options.timeout = CommunicatorOptions().timeout;
  options.store_port = TestTcpStore().port();
  return options;
}

}  // namespace elastiquant
