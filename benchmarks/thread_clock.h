// Processor time of the calling thread, which other programs on the machine do not add to.
#pragma once

#include <ctime>

namespace elastiquant {

inline double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns how long fn() takes.
template <typename Fn>
double Timed(Fn fn) {
  const double begin = ThreadSeconds();
  fn();
  return ThreadSeconds() - begin;
}

}  // namespace elastiquant
