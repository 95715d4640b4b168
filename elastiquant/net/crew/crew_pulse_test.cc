#include "elastiquant/net/crew/crew_pulse.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "elastiquant/net/crew/muster.h"
#include "elastiquant/net/forwarding_testing.h"
#include "elastiquant/net/memory/memory_network.h"

namespace elastiquant {
namespace {

// Counts how often it is asked whether a key exists.
class CountingStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  Result<bool> Exists(const std::string& key) override {
    ++asked_;
    return ForwardingStore::Exists(key);
  }
  int asked() const { return asked_; }

 private:
  int asked_ = 0;
};

// A worker that comes back over a slow link asks for few of the groups of a long run.
TEST(CrewPulseTest, TheNewestOfManyGroupsIsFoundInFewLooks) {
  MemoryNetwork network;
  const auto host = network.At()->HostStore(0, Reach::kThisMachine).value();
  const auto connect = [&] {
    return network.At()->ConnectStore("", host->port(), "", std::chrono::seconds(1)).value();
  };
  const auto writer = connect();
  for (int newest = 0; newest <= 300; ++newest) {
    ASSERT_TRUE(writer->Set(GroupKey(newest), EncodeGroup({0, 1})).ok());
    CountingStore store(connect());
    EXPECT_EQ(FindNewestGroup(store).value(), newest);
    EXPECT_LE(store.asked(), 18);
  }
}

}  // namespace
}  // namespace elastiquant
