#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <tuple>
#include <vector>

#include "elastiquant/ddp/ddp_plan.h"
#include "elastiquant/ddp/ddp_stats.h"
#include "elastiquant/layers/codec_memory.h"

namespace elastiquant::python {

// A parameter in Python's words: its name, dimensions and codec.
using ParameterTuple = std::tuple<std::string, std::vector<size_t>, std::string>;
std::vector<DdpParameter> ParametersOf(const std::vector<ParameterTuple>& tuples);
// The same without codecs.
using NamedSizes = std::vector<std::tuple<std::string, std::vector<size_t>>>;
std::vector<ParameterShape> ShapesOf(const NamedSizes& parameters);

// What Python makes of counts: the fields of elastiquant.Stats by name.
pybind11::dict DictOf(const DdpStats& stats);
// Sections of a state as bytes by name, and back.
pybind11::dict DictOf(const Sections& sections);
Sections SectionsOf(const pybind11::dict& state);

// What stands behind elastiquant.compress().
void BindDdp(pybind11::module_& module);

}  // namespace elastiquant::python
