#include "elastiquant/kernels/count_codes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

TEST(CountCodesTest, CountsEveryLengthAndCode) {
  ForEachTarget([] {
    const LaneKeys keys = MakeLaneKeys({3});
    for (int bits : {2, 4, 8}) {
      for (size_t n : {0, 1, 63, 64, 65, 127, 128, 1000, 16320, 16384, 20000}) {
        std::vector<uint8_t> codes(n);
        uint32_t expected[256] = {}, counts[256];
        for (size_t i = 0; i < n; ++i) {
          // All the same in the front: counters of 8 bits would overflow.
          const uint32_t random = RandomBits(keys, static_cast<uint32_t>(i)) >> (32 - bits);
          codes[i] = static_cast<uint8_t>(i < n / 2 ? 1 : random);
          ++expected[codes[i]];
        }
        CountCodes(codes.data(), n, bits, counts);
        ASSERT_EQ(std::memcmp(counts, expected, sizeof(counts)), 0) << bits << " bits, " << n;
        if (n > 0) {  // a code that is not as small as said is counted all the same
          --expected[codes[n / 2]];
          codes[n / 2] = 200;
          ++expected[200];
          CountCodes(codes.data(), n, bits, counts);
          ASSERT_EQ(std::memcmp(counts, expected, sizeof(counts)), 0);
        }
      }
    }
  });
}

}  // namespace
}  // namespace elastiquant
