#include "elastiquant/train/loop/freed_memory.h"

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <limits>

namespace elastiquant {

void KeepFreedMemory() {
#ifdef __GLIBC__
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  const auto settings = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"};
  if (std::ranges::any_of(settings, is_set)) return;
  constexpr int kMostThatGlibcTakes = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kMostThatGlibcTakes);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

}  // namespace elastiquant
