// Copies of values that lie elsewhere, parameter by parameter.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

namespace elastiquant {

inline std::vector<std::vector<float>> CopyOf(const std::vector<std::span<float>>& values) {
  std::vector<std::vector<float>> copy;
  copy.reserve(values.size());
  for (const std::span<float> v : values) copy.emplace_back(v.begin(), v.end());
  return copy;
}

inline std::vector<std::vector<float>> ZerosLike(const std::vector<std::span<float>>& values) {
  std::vector<std::vector<float>> zeros;
  zeros.reserve(values.size());
  for (const std::span<float> v : values) zeros.emplace_back(v.size());
  return zeros;
}

inline void SetZero(std::vector<std::vector<float>>* values) {
  for (std::vector<float>& v : *values) std::ranges::fill(v, 0.0f);
}

}  // namespace elastiquant
