// The network of production: c10d's TCPStore to meet in, and its ProcessGroupGloo for messages.
#pragma once

#include <memory>

#include "elastiquant/net/network.h"

namespace elastiquant {

std::shared_ptr<Network> MakeGlooNetwork();

}  // namespace elastiquant
