#include "elastiquant/c10d/gloo_network.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "elastiquant/c10d/testing.h"
#include "elastiquant/net/transport_contract.h"

namespace elastiquant {
namespace {

TEST(GlooNetwork, KeepsTheContractOfTransports) {
  constexpr int kWorkers = 3;
  Transports transports(kWorkers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([rank, &transports] {
      const TransportOptions options{rank,
                                     kWorkers,
                                     "127.0.0.1",
                                     TestTcpStore().port(),
                                     "gloo_network_test/",
                                     std::chrono::seconds(60),
                                     true};
      transports[static_cast<size_t>(rank)] = MakeGlooNetwork()->Connect(options).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectTransportContract(transports);
}

// As PyTorch takes it: a list of interfaces, or one that is empty and says nothing.
TEST(GlooNetwork, TakesTheFirstInterfaceThatTheEnvironmentNames) {
  for (const std::string names : {"lo", "lo,none0", "", ",none0", "none0"}) {
    setenv("GLOO_SOCKET_IFNAME", names.c_str(), /*overwrite=*/1);
    const auto transport = MakeGlooNetwork()->Connect({0, 1, "127.0.0.1", TestTcpStore().port(),
                                                       "interface/" + names + "/",
                                                       std::chrono::seconds(60), true});
    unsetenv("GLOO_SOCKET_IFNAME");
    EXPECT_EQ(transport.ok(), names != "none0") << names << transport.status().ToString();
  }
}

}  // namespace
}  // namespace elastiquant
