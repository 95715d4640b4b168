// What tests of random schedules share: what is drawn in them, and how the one that failed is
// run alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {

// The random numbers of a schedule.
class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(Mix64(seed)) {}
  size_t Below(size_t n) { return static_cast<size_t>(Mix64(state_++) % n); }
  bool Of(double p) { return static_cast<double>(Below(1 << 20)) < p * (1 << 20); }
  float Between(float low, float high) {
    return low + (high - low) * static_cast<float>(Below(1 << 20)) / (1 << 20);
  }
  template <typename T>
  const T& From(const std::vector<T>& list) {
    return list[Below(list.size())];
  }

 private:
  uint64_t state_;
};

// GCC defines the former two, and clang has the latter.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ELASTIQUANT_IS_SANITIZED 1
#elif defined(__has_feature)
#define ELASTIQUANT_IS_SANITIZED \
  __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#endif
#if ELASTIQUANT_IS_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Returns how many of `count` schedules are tried: a tenth under a sanitizer, which is there to
// find other faults and makes them take many times as long.
constexpr uint64_t Tried(uint64_t count) { return kSanitized ? (count + 9) / 10 : count; }

// Runs the schedules 0 to Tried(`count`) - 1 until one fails; if the environment variable
// `replay` has a number, that one alone.
inline void ForEachSchedule(const char* replay, uint64_t count,
                            const std::function<void(uint64_t seed)>& run) {
  const char* only = std::getenv(replay);
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 0;
  const uint64_t end = only != nullptr ? first + 1 : Tried(count);
  for (uint64_t seed = first; seed < end; ++seed) {
    SCOPED_TRACE("replay with " + std::string(replay) + "=" + std::to_string(seed));
    run(seed);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace elastiquant
