// A graph in a text file, an edge a line: "A B" or "A B WEIGHT", such as "0 3 0.25", where A
// and B are numbers of workers from 0. Each edge stands once and joins both ways; or all edges
// are "A > B", on which A gives to B and takes nothing. What follows '#' is a comment.
#pragma once

#include <cstddef>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/graph/mixing.h"

namespace elastiquant {

// Reads the file. Edges have Metropolis weights unless all of them have weights of their own;
// each worker keeps the rest for itself. On directed ones each gives equal parts to itself and
// to all whom it gives to: columns add up to 1, and rows do not if some take from more. Fails
// with kInvalidArgument, naming the line, for what is no edge or goes with no other one, and
// naming the row, if weights add up to more than 1 or a worker cannot be reached; and with
// kNotFound if the file cannot be read.
Result<Mixing> ReadEdgeFile(const std::string& path, size_t workers);
// The same of a text; `name` is what errors call it.
Result<Mixing> ParseEdges(const std::string& text, size_t workers, const std::string& name);

}  // namespace elastiquant
