// Takes from an exception of libtorch the words that fit in one of our messages.
#pragma once

#include <exception>
#include <string>

namespace elastiquant {

// Returns the first line, because what follows in a c10::Error is a stack trace. Of that line
// it leaves out the place in Gloo's source at its beginning and the advice at its end.
inline std::string Words(const std::exception& e) {
  std::string words = e.what();
  words = words.substr(0, words.find('\n'));
  words = words.substr(0, words.find(". This is typically caused by"));
  if (words.starts_with("[/")) words.erase(0, words.find("] ") + 2);
  return words;
}

}  // namespace elastiquant
