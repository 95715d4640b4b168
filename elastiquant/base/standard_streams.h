// The three streams that a process is started with.
#pragma once

#include <string>

namespace elastiquant {

// Opens /dev/null for each standard stream that is closed. A file or a socket that is opened
// later would otherwise get its number, and what is said to a person would be written into it.
void OpenClosedStreams();

// Writes out what is left for stdout. Returns `exit_code`, or if that is 0 and something could
// not be written, says so on stderr and returns 1.
int ExitCodeOnceWritten(int exit_code);

// Writes "warning: " and a line to stderr. A program goes on if that cannot be written, as to a
// log on a full disk.
void Warn(const std::string& line);

}  // namespace elastiquant
