// For tests: runs a body once on every SIMD target of this machine.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

namespace elastiquant {

// Calls body() with every dynamic dispatch going to one target after the other.
template <typename Body>
void ForEachTarget(Body body) {
  hwy::SetSupportedTargetsForTest(0);
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace elastiquant
