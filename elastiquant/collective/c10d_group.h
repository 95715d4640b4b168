// A GlooGroup over a process group that is connected already.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "elastiquant/collective/gloo_group.h"

namespace elastiquant {

// gloo: a ProcessGroupGloo, for ours alone.
std::unique_ptr<GlooGroup> MakeC10dGroup(c10::intrusive_ptr<c10d::Backend> gloo);

}  // namespace elastiquant
