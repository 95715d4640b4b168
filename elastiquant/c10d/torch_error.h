// libtorch throws: the words of an exception that fit in one of our messages.
#pragma once

#include <exception>
#include <string>

namespace elastiquant {

// The first line, for what follows in a c10::Error is a stack trace, without the place in
// Gloo's source before it and the advice after it.
inline std::string Words(const std::exception& e) {
  std::string words = e.what();
  words = words.substr(0, words.find('\n'));
  words = words.substr(0, words.find(". This is typically caused by"));
  if (words.starts_with("[/")) words.erase(0, words.find("] ") + 2);
  return words;
}

}  // namespace elastiquant
