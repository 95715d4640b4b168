// Small text files that a user writes: a graph, links between machines.
#pragma once

#include <string>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Returns all that the file holds. Fails with NotFound if there is no such file, or if it is a
// folder or cannot be read to its end.
Result<std::string> ReadTextFile(const std::string& path);

// Returns the words of a line, without what follows '#'. Nothing but an empty line or a comment
// has no words.
std::vector<std::string> WordsOf(const std::string& line);

}  // namespace elastiquant
