// The program `elastiquant`, but for its main.
#pragma once

namespace elastiquant::cli {

// Parses the command line and runs the subcommand that it names. Returns the exit code, one of
// command.h's.
int RunProgram(int argc, char** argv);

// Ends the process, with kExitFailure if what it has written to stdout cannot go out. Static
// objects are not destroyed: for libtorch's operators that takes a tenth of a second of a core.
[[noreturn]] void LeaveProcess(int exit_code);

}  // namespace elastiquant::cli
