// elastiquant._core._GossipEngine.
#pragma once

#include <pybind11/pybind11.h>

namespace elastiquant::python {

void BindGossip(pybind11::module_& module);

}  // namespace elastiquant::python
