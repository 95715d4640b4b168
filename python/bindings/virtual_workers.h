#pragma once

#include <pybind11/pybind11.h>

namespace elastiquant::python {

// What stands behind elastiquant.VirtualWorkers.
void BindVirtualWorkers(pybind11::module_& module);

}  // namespace elastiquant::python
