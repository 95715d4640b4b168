#include "elastiquant/codec/conformance/allocation_counter_testing.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<size_t> allocated_bytes{0};
// Null if there is no memory.
void* CountedAllocation(size_t size, std::align_val_t align) {
  allocated_bytes += size;
  const auto alignment = static_cast<size_t>(align);
  // The size must be a multiple of the alignment.
  return std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
}
void* CountedOrThrow(size_t size, std::align_val_t align) {
  if (void* p = CountedAllocation(size, align)) return p;
  throw std::bad_alloc();
}
constexpr std::align_val_t kUsual{__STDCPP_DEFAULT_NEW_ALIGNMENT__};
}  // namespace

namespace elastiquant {
size_t AllocatedBytes() { return allocated_bytes; }
}  // namespace elastiquant

// In a file of their own, away from the code that allocates: where a compiler inlines only one
// of a pair, it takes free() for the wrong partner of new, and warns.
using std::align_val_t, std::nothrow_t;
void* operator new(size_t n) { return CountedOrThrow(n, kUsual); }
void* operator new[](size_t n) { return CountedOrThrow(n, kUsual); }
void* operator new(size_t n, align_val_t a) { return CountedOrThrow(n, a); }
void* operator new[](size_t n, align_val_t a) { return CountedOrThrow(n, a); }
void* operator new(size_t n, const nothrow_t&) noexcept { return CountedAllocation(n, kUsual); }
void* operator new[](size_t n, const nothrow_t&) noexcept {
  return CountedAllocation(n, kUsual);
}
void* operator new(size_t n, align_val_t a, const nothrow_t&) noexcept {
  return CountedAllocation(n, a);
}
void* operator new[](size_t n, align_val_t a, const nothrow_t&) noexcept {
  return CountedAllocation(n, a);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, align_val_t) noexcept { std::free(p); }
