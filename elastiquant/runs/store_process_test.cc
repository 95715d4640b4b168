#include "elastiquant/runs/store_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "elastiquant/c10d/tcp_store.h"

namespace elastiquant {
namespace {

using namespace std::chrono_literals;

TEST(StoreProcessTest, HostsAStoreForAsLongAsItLives) {
  std::optional<StoreProcess> process = StoreProcess::Start(0).value();
  const uint16_t port = process->port();
  {
    const auto store = ConnectTcpStore("127.0.0.1", port, "", 10s);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    EXPECT_EQ((*store)->Increment("visitors").value(), 1);
  }
  process.reset();
  EXPECT_FALSE(ConnectTcpStore("127.0.0.1", port, "", 100ms).ok());
  EXPECT_EQ(StoreProcess::Start(port).value().port(), port);
}

TEST(StoreProcessTest, RefusesAPortThatIsInUse) {
  const StoreProcess first = StoreProcess::Start(0).value();
  const auto second = StoreProcess::Start(first.port());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), testing::HasSubstr(std::to_string(first.port())));
}

}  // namespace
}  // namespace elastiquant
