#include "elastiquant/kernels/targets.h"

#include <hwy/highway.h>

namespace elastiquant {
namespace {

void Dispatch(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);  // 0: all that the CPU has
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// What the kernels were compiled for and the CPU can run, whatever is in use now.
std::vector<int64_t> Runnable() {
  const int64_t in_use = hwy::SupportedTargets();
  hwy::SetSupportedTargetsForTest(0);
  const bool forced = hwy::SupportedTargets() != in_use;
  std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  if (forced) hwy::SetSupportedTargetsForTest(in_use);
  return targets;
}

}  // namespace

std::vector<std::string> SimdTargets() {
  std::vector<std::string> names;
  for (int64_t target : Runnable()) names.emplace_back(hwy::TargetName(target));
  return names;
}

Status UseSimdTarget(std::string_view name) {
  if (name == "auto") {
    Dispatch(0);
    return Status::Ok();
  }
  std::string list;
  for (int64_t target : Runnable()) {
    if (name == hwy::TargetName(target)) {
      Dispatch(target);
      return Status::Ok();
    }
    list += std::string(", ") + hwy::TargetName(target);
  }
  return Unsupported("SIMD target '" + std::string(name) +
                     "' is not one that this build and CPU can run: use auto" + list);
}

std::string CurrentSimdTarget() {
  return hwy::TargetName(hwy::SupportedAndGeneratedTargets().front());
}

}  // namespace elastiquant
