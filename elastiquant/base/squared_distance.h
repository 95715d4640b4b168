// How far two vectors are apart.
#pragma once

#include <cstddef>
#include <span>

namespace elastiquant {

// Returns |a - b|^2, added up in double precision. The spans must be of the same size.
inline double SquaredDistance(std::span<const float> a, std::span<const float> b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    squares += difference * difference;
  }
  return squares;
}

}  // namespace elastiquant
