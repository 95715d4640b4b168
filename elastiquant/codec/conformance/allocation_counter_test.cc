#include <gtest/gtest.h>

#include <new>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/conformance/allocation_counter_testing.h"

namespace elastiquant {
namespace {

TEST(AllocationCounter, SeesEveryFormOfNew) {
  constexpr size_t kBytes = 1000;
  constexpr std::align_val_t kAlign{64};
  void* volatile seen;  // or a compiler may leave out what is freed again
  const auto counted = [&](const auto& allocate, const auto& free) {
    const size_t before = AllocatedBytes();
    seen = allocate();
    free(seen);
    return AllocatedBytes() - before;
  };
  const auto free = [](void* p) { ::operator delete(p); };
  const auto free_array = [](void* p) { ::operator delete[](p); };
  const auto free_aligned = [](void* p) { ::operator delete(p, kAlign); };
  EXPECT_EQ(counted([] { return ::operator new(kBytes); }, free), kBytes);
  EXPECT_EQ(counted([] { return ::operator new(kBytes, std::nothrow); }, free), kBytes);
  EXPECT_EQ(counted([] { return ::operator new[](kBytes); }, free_array), kBytes);
  EXPECT_EQ(counted([] { return ::operator new[](kBytes, std::nothrow); }, free_array), kBytes);
  EXPECT_EQ(counted([] { return ::operator new(kBytes, kAlign); }, free_aligned), kBytes);
  EXPECT_EQ(counted([] { return ::operator new(kBytes, kAlign, std::nothrow); }, free_aligned),
            kBytes);
  Workspace work(1);
  const size_t before = AllocatedBytes();
  work.Scratch(0, kBytes)[0] = 1;
  EXPECT_GE(AllocatedBytes() - before, kBytes) << "what codecs work in";
}

}  // namespace
}  // namespace elastiquant
