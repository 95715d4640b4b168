// Makes parameters for tests.
#pragma once

#include <string>

#include "elastiquant/ddp/ddp_plan.h"

namespace elastiquant {

// Returns a parameter with these fields. It is a function because GCC 12 takes aggregates of
// these in a list for uninitialised.
inline DdpParameter Parameter(const std::string& name, size_t rows, size_t cols,
                              const std::string& codec) {
  DdpParameter parameter;
  parameter.shape.name = name;
  parameter.shape.elements = rows * cols;
  parameter.shape.dimensions = cols > 1 ? 2 : 1;
  parameter.shape.rows = rows;
  parameter.codec = codec;
  return parameter;
}

}  // namespace elastiquant
