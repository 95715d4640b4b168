#include "elastiquant/kernels/sort.h"

#include <hwy/contrib/sort/vqsort.h>

namespace elastiquant {

void SortFloats(float* v, size_t n) {
  // It holds buffers, which are worth keeping from one call to the next.
  thread_local const hwy::Sorter sorter;
  sorter(v, n, hwy::SortAscending());
}

}  // namespace elastiquant
