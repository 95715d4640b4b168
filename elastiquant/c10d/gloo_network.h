// The network of production: workers meet in c10d's TCPStore, and its ProcessGroupGloo carries
// the messages.
#pragma once

#include <memory>

#include "elastiquant/net/network.h"

namespace elastiquant {

// Makes one.
std::shared_ptr<Network> MakeGlooNetwork();

}  // namespace elastiquant
