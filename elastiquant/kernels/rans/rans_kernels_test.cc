#include "elastiquant/kernels/rans/rans_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

// The quotient by float product, at every frequency and at the states next to each multiple.
TEST(RansKernelsTest, EncoderDividesExactlyAtEveryFrequency) {
  std::vector<uint32_t> quotients = {16, 17, 1000, 65535, 65536, 1u << 19, (1u << 20) - 1};
  for (uint32_t i = 0; i < 200; ++i) {
    quotients.push_back(16 + RandomBits({5, 6}, i) % ((1u << 20) - 16));
  }
  ForEachTarget([&] {
    for (uint32_t f = 1; f < kRansScale; f += f < 64 || f > 4000 ? 1 : 13) {
      RansFrequencies frequencies{};
      frequencies.of[3] = static_cast<uint16_t>(f);
      frequencies.of[9] = static_cast<uint16_t>(kRansScale - f);
      RansEncoderTable table;
      MakeRansEncoderTable(frequencies, &table);
      const std::vector<uint8_t> codes(32, 3);
      std::vector<uint32_t> states;
      for (uint32_t q : quotients) {
        for (const uint32_t rest : {0u, 1u, f / 2, f - 1}) {
          const uint64_t x = uint64_t{q} * f + rest;
          if (rest < f && x >= kRansLow) states.push_back(static_cast<uint32_t>(x));
        }
      }
      for (uint32_t x : {kRansLow, ~0u, ~0u - f}) states.push_back(x);
      while (states.size() % 32 != 0) states.push_back(kRansLow);
      for (size_t i = 0; i < states.size(); i += 32) {
        uint32_t in[32], out[32];
        std::memcpy(in, &states[i], sizeof(in));
        std::memcpy(out, in, sizeof(in));
        uint8_t words[128];
        const size_t count =
            RansEncodeRows(codes.data(), 1, 32, table, out, words, 64, nullptr);
        ASSERT_NE(count, kRansNoRoom);
        for (int lane = 0; lane < 32; ++lane) {
          const uint32_t x = in[lane] >> 20 >= f ? in[lane] >> 16 : in[lane];
          ASSERT_EQ(out[lane], (x / f << 12) + x % f) << "f " << f << " x " << in[lane];
        }
      }
    }
  });
}

TEST(RansKernelsTest, StopsWhereThereIsNoRoom) {
  RansFrequencies frequencies{};
  frequencies.of[0] = 1;
  frequencies.of[1] = 4095;
  RansEncoderTable table;
  MakeRansEncoderTable(frequencies, &table);
  const std::vector<uint8_t> rare(64 * 10, 0);  // 12 bits each
  ForEachTarget([&] {
    for (const size_t lanes : {32, 64}) {
      const size_t rows = rare.size() / lanes;
      std::vector<uint32_t> states(lanes, kRansLow);
      std::vector<uint8_t> words(2 * 100 + 1, 0xEE);
      EXPECT_EQ(RansEncodeRows(rare.data(), rows, lanes, table, states.data(), words.data(),
                               100, nullptr),
                kRansNoRoom);
      EXPECT_EQ(words.back(), 0xEE);
    }
  });
}

}  // namespace
}  // namespace elastiquant
