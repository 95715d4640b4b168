// A line on stderr that says what is being done.
#pragma once

#include <string>

namespace elastiquant::cli {

// Takes the place of what it said before; an empty one clears the line. Says nothing unless
// stderr is a terminal.
void SayProgress(const std::string& words);

}  // namespace elastiquant::cli
