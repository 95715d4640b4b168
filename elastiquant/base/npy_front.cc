#include "elastiquant/base/npy_front.h"

namespace elastiquant {

std::string NpyFront(size_t elements) {
  constexpr size_t kAlignment = 64;
  constexpr size_t kFixed = 10;  // magic, version, length of the dictionary
  std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                           std::to_string(elements) + ",), }";
  const size_t unpadded = kFixed + dictionary.size() + 1;
  dictionary.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dictionary.push_back('\n');
  std::string front("\x93NUMPY\x01\x00", 8);
  front.push_back(static_cast<char>(dictionary.size() & 0xFF));
  front.push_back(static_cast<char>(dictionary.size() >> 8));
  return front + dictionary;
}

}  // namespace elastiquant
