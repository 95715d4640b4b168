#include "elastiquant/c10d/tcp_store.h"

#include "elastiquant/c10d/testing.h"
#include "elastiquant/net/store_contract.h"

namespace elastiquant {
namespace {

TEST(TcpStore, KeepsTheContractOfStores) { ExpectStoreContract(*MakeGlooNetwork()); }

}  // namespace
}  // namespace elastiquant
