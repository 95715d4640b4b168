#include "elastiquant/c10d/tcp_store.h"

#include "elastiquant/c10d/testing.h"
#include "elastiquant/net/store_contract.h"

namespace elastiquant {
namespace {

TEST(TcpStore, KeepsTheContractOfStores) { ExpectStoreContract(*MakeGlooNetwork()); }

// The store of these tests listens on this machine, but by IPv4 alone.
TEST(TcpStore, AnIPv6AddressIsSaidNotToBeListenedOn) {
  const Status status =
      ConnectTcpStore("::1", TestTcpStore().port(), "", std::chrono::milliseconds(100))
          .status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("worker 0 listens on IPv4 alone"), std::string::npos)
      << status.ToString();
}

}  // namespace
}  // namespace elastiquant
