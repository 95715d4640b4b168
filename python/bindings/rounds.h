#pragma once

#include <pybind11/pybind11.h>

namespace elastiquant::python {

// What stands behind elastiquant.DiLoCo and elastiquant.LocalSGD.
void BindRounds(pybind11::module_& module);

}  // namespace elastiquant::python
