// A transport over a process group of c10d that is connected already.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "elastiquant/net/transport.h"

namespace elastiquant {

// Makes a transport over `gloo`, a ProcessGroupGloo that nobody else uses.
std::unique_ptr<Transport> MakeBackendTransport(c10::intrusive_ptr<c10d::Backend> gloo);

}  // namespace elastiquant
