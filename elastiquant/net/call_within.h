// Calls to what may never answer, such as a store whose process is frozen.
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace elastiquant {

// Calls `work` on a thread of its own and returns what it returns, or nothing if that takes
// longer than `patience`. The thread is left behind then, so `work` must own all that it uses.
template <class Work>
std::optional<std::invoke_result_t<Work>> CallWithin(std::chrono::milliseconds patience,
                                                     Work work) {
  std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  // Looks often, so that time in which the whole process stands still counts as one look.
  constexpr int kLooks = 20;
  for (int looks = 0; looks < kLooks; ++looks) {
    if (result.wait_for(patience / kLooks) == std::future_status::ready) return result.get();
  }
  return std::nullopt;
}

}  // namespace elastiquant
