#pragma once

#include <pybind11/pybind11.h>

namespace elastiquant::python {

// What stands behind elastiquant.all_reduce() and all_gather().
void BindCollectives(pybind11::module_& module);

}  // namespace elastiquant::python
