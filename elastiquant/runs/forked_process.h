// A process that goes on as a copy of this one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Runs `body` in a process that is forked from this one, and returns its id. This process may
// have no other thread: the copy would not have it, and what that thread had locked would stay
// locked. The new process is called `name` in `ps -o comm` (15 bytes of it), dies with this
// one, and ends with the exit code that `body` returns, or with 1 and a message if that throws
// or if what it has written to stdout cannot go out.
Result<pid_t> ForkProcess(const std::string& name, const std::function<int()>& body);

}  // namespace elastiquant
