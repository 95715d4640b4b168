// Index codes to test the coders with.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {

enum class CodePattern {
  kZeros,
  kOneNonzero,
  kConstant,
  kUniform,
  kGaussian,
  kSparse,
  kSkewed
};
inline constexpr CodePattern kAllPatterns[] = {CodePattern::kZeros,    CodePattern::kOneNonzero,
                                               CodePattern::kConstant, CodePattern::kUniform,
                                               CodePattern::kGaussian, CodePattern::kSparse,
                                               CodePattern::kSkewed};

// n codes without negative zeros; the same for the same arguments.
inline std::vector<uint8_t> MakeCodes(CodePattern pattern, size_t n, int bits,
                                      uint64_t seed = 1) {
  const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, n, bits, static_cast<uint64_t>(pattern)));
  const int half = 1 << (bits - 1);
  std::vector<uint8_t> codes(n);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t random = RandomBits(keys, static_cast<uint32_t>(i));
    const int sign = static_cast<int>(random & 1);
    int level = 0;
    switch (pattern) {
      case CodePattern::kZeros:
        break;
      case CodePattern::kOneNonzero:
        level = i == n / 2 ? half - 1 : 0;
        break;
      case CodePattern::kConstant:
        codes[i] = static_cast<uint8_t>(2 * half - 1);
        continue;
      case CodePattern::kUniform:
        level = static_cast<int>((random >> 8) % half);
        break;
      case CodePattern::kGaussian: {
        // Sum of four uniforms, the largest level at three standard deviations.
        int sum = 0;
        for (int j = 0; j < 4; ++j) {
          sum += static_cast<int>(RandomBits(keys, static_cast<uint32_t>(n + 4 * i + j)) >> 20);
        }
        level = std::min(half - 1, std::abs(sum - 8190) * half / 7096);
        break;
      }
      case CodePattern::kSparse:
        level = (random >> 8) % 50 == 0 ? 1 : 0;
        break;
      case CodePattern::kSkewed:
        level = random >> 20 == 0 ? static_cast<int>((random >> 8) % half) : 1;
        break;
    }
    codes[i] = static_cast<uint8_t>(level == 0 ? 0 : sign * half + level);
  }
  return codes;
}

}  // namespace elastiquant
