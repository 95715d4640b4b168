// Worlds for tests over Gloo. Those in memory are in net/memory/testing.h.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>

#include "elastiquant/c10d/gloo_network.h"
#include "elastiquant/c10d/tcp_store.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {

// Returns the one TCP store of a test program, which lives until the program ends.
inline StoreHost& TestTcpStore() {
  static StoreHost* host = HostTcpStore(0, Reach::kAnywhere).value().release();
  return *host;
}

// Returns a port of this machine that nobody listens at.
inline uint16_t FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
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
