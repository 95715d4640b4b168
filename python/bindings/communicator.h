// How the workers of a process group come to a Communicator of their own.
#pragma once

#include <pybind11/pybind11.h>

#include "elastiquant/net/communicator.h"

namespace elastiquant::python {

// Of elastiquant._group.Meeting: where a process group's workers meet.
CommunicatorOptions OptionsOf(const pybind11::object& meeting);

void BindCommunicator(pybind11::module_& module);

}  // namespace elastiquant::python
