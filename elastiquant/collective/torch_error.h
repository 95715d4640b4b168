// libtorch throws: the words of an exception that fit in one of our messages.
#pragma once

#include <exception>
#include <string>

namespace elastiquant {

// The first line: what follows in a c10::Error is a stack trace.
inline std::string FirstLine(const std::exception& e) {
  const std::string what = e.what();
  return what.substr(0, what.find('\n'));
}

}  // namespace elastiquant
