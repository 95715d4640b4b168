#pragma once

#include <pybind11/pybind11.h>

#include "elastiquant/ddp/ddp_stats.h"
#include "elastiquant/layers/codec_memory.h"

namespace elastiquant::python {

// What Python makes of counts: the fields of elastiquant.Stats by name.
pybind11::dict DictOf(const DdpStats& stats);
// Sections of a state as bytes by name, and back.
pybind11::dict DictOf(const Sections& sections);
Sections SectionsOf(const pybind11::dict& state);

// What stands behind elastiquant.compress().
void BindDdp(pybind11::module_& module);

}  // namespace elastiquant::python
