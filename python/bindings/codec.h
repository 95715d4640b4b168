// elastiquant.Codec, and elastiquant.codecs().
#pragma once

#include <pybind11/pybind11.h>

namespace elastiquant::python {

void BindCodec(pybind11::module_& module);

}  // namespace elastiquant::python
