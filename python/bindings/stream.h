// elastiquant.Stream: tensor after tensor under a codec that may remember.
#pragma once

#include <pybind11/pybind11.h>

#include "python/bindings/codec.h"

namespace elastiquant::python {

// A new elastiquant.Stream of the codec.
pybind11::object MakeStream(CodecPtr codec);

void BindStream(pybind11::module_& module);

}  // namespace elastiquant::python
