#include "elastiquant/c10d/tcp_store.h"

#include <cstdlib>
#include <optional>
#include <string>

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

// To try it takes a silent server at port 53. So this is what the C library will read.
TEST(TcpStore, ASilentNameServerIsNotWaitedForLong) {
  const char* before = std::getenv("RES_OPTIONS");
  const std::optional<std::string> kept =
      before ? std::optional<std::string>(before) : std::nullopt;
  unsetenv("RES_OPTIONS");
  WaitBrieflyForNames();
  EXPECT_STREQ(std::getenv("RES_OPTIONS"), "timeout:1 attempts:2");
  setenv("RES_OPTIONS", "timeout:3", 1);
  WaitBrieflyForNames();
  EXPECT_STREQ(std::getenv("RES_OPTIONS"), "timeout:3");
  unsetenv("RES_OPTIONS");
  if (kept) setenv("RES_OPTIONS", kept->c_str(), 1);
}

}  // namespace
}  // namespace elastiquant
