// Counts what a test program allocates, for tests that bound the memory of a call.
#pragma once

#include <cstddef>

namespace elastiquant {

// The bytes that this program has asked for since it started, by every form of new and on all
// threads; what was freed since still counts. Linking it replaces the program's operator new.
size_t AllocatedBytes();

}  // namespace elastiquant
