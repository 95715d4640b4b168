// What the C library does with memory that a step has freed.
#pragma once

namespace elastiquant {

// Lets this process keep the memory that it frees. A training step frees hundreds of tensors.
// glibc returns the large ones to the system at once, and in the next step the system has to
// clear new pages for them, which takes up to a fifth of the computing time of small networks.
// The process then holds as much memory as at its peak. Does nothing with another C library, or
// where the environment has settings for glibc's malloc (MALLOC_TRIM_THRESHOLD_,
// MALLOC_MMAP_THRESHOLD_ or GLIBC_TUNABLES).
void KeepFreedMemory();

}  // namespace elastiquant
