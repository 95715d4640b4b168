// Frames that were damaged, at random or with a right checksum, are refused or decoded to
// finite values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "elastiquant/codec/conformance/allocation_counter_testing.h"
#include "elastiquant/codec/conformance/conformance_testing.h"
#include "elastiquant/codec/frame_testing.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

TEST_P(Conformance, EveryFlippedBitIsNoticed) {
  for (size_t n : {0u, 1u, 37u}) {
    std::vector<uint8_t> frame = Encoded(Gaussian(n));
    for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      const auto mask = static_cast<uint8_t>(1 << bit % 8);
      frame[bit / 8] ^= mask;
      EXPECT_FALSE(InspectFrame(frame).ok()) << "bit " << bit;
      EXPECT_FALSE(TryDecode(frame, n).ok()) << "bit " << bit;
      frame[bit / 8] ^= mask;
    }
    EXPECT_TRUE(TryDecode(frame, n).ok());
  }
}

TEST_P(Conformance, EveryTruncationIsNoticed) {
  const std::vector<uint8_t> frame = Encoded(Gaussian(37));
  for (size_t size = 0; size < frame.size(); ++size) {
    const std::vector<uint8_t> cut(frame.begin(), frame.begin() + static_cast<long>(size));
    EXPECT_EQ(TryDecode(cut, 37).code(), StatusCode::kCorruptData) << size;
  }
  std::vector<uint8_t> longer = frame;
  longer.push_back(0);
  EXPECT_EQ(TryDecode(longer, 37).code(), StatusCode::kCorruptData);
}

// What a frame comes to on one SIMD target.
struct Decoding {
  Status decoded, added;
  std::vector<float> values, sum;
};
Decoding DecodeBothWays(std::span<const uint8_t> frame, size_t n, Workspace& work) {
  Decoding d{{}, {}, std::vector<float>(n), std::vector<float>(n, 0.25f)};
  d.decoded = DecodeFrame(frame, work, d.values);
  d.added = DecodeAddFrame(frame, 0.5f, work, d.sum);
  return d;
}

// Whatever stands behind a right checksum, decoding gives finite values or an error, the same
// on all targets; the sanitizers watch that it stays within its buffers.
TEST_P(Conformance, HostileBytesAreDecodedOrRefused) {
  std::mt19937 generator(7);
  const auto random = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(generator);
  };
  const std::vector<std::string> targets = SimdTargets();
  for (size_t n : {1u, 37u, 600u}) {
    const std::vector<uint8_t> good = Encoded(Gaussian(n));
    std::vector<std::vector<uint8_t>> frames(500, good);
    for (std::vector<uint8_t>& bad : frames) {
      // Not the element count and lengths: those have a test of their own.
      for (size_t k = 1 + random(4); k > 0; --k) {
        const size_t at = random(bad.size());
        const bool fixed = at < 5 || (at >= 7 && at < 16) || (at >= 24 && at < 32);
        if (!fixed) bad[at] = static_cast<uint8_t>(random(256));
      }
      FixFrameChecksum(bad);
    }
    std::vector<Decoding> first;
    for (const std::string& target : targets) {
      const ScopedTarget scoped(target);
      for (size_t i = 0; i < frames.size(); ++i) {
        Decoding d = DecodeBothWays(frames[i], n, work_);
        ASSERT_EQ(d.decoded.ToString(), d.added.ToString()) << target;
        if (d.decoded.ok()) {
          EXPECT_TRUE(std::ranges::all_of(d.values, [](float v) { return std::isfinite(v); }));
        }
        if (target == targets.front()) {
          first.push_back(std::move(d));
          continue;
        }
        ASSERT_EQ(d.decoded.ToString(), first[i].decoded.ToString()) << target;
        if (!d.decoded.ok()) continue;
        EXPECT_TRUE(SameBits(d.values, first[i].values)) << target;
        EXPECT_TRUE(SameBits(d.sum, first[i].sum)) << target;
      }
    }
  }
}

TEST_P(Conformance, PayloadsCutShortOrDrawnOutAreRefused) {
  const std::vector<uint8_t> good = Encoded(Gaussian(37));
  const size_t body = good.size() - kFrameHeaderBytes;
  for (size_t size = 0; size < body + 5; ++size) {
    if (size == body) continue;
    std::vector<uint8_t> bad = good;
    bad.resize(kFrameHeaderBytes + size);
    if (size < bad[7]) bad[7] = static_cast<uint8_t>(size);
    const uint64_t payload = size - bad[7];
    std::memcpy(bad.data() + 24, &payload, sizeof(payload));
    FixFrameChecksum(bad);
    EXPECT_EQ(TryDecode(bad, 37).code(), StatusCode::kCorruptData) << size;
  }
}

TEST_P(Conformance, FramesAreNotBelievedAboutTheirSize) {
  const std::vector<uint8_t> good = Encoded(Gaussian(37));
  for (size_t n : {0u, 36u, 38u, 100000u}) {
    const Status status = TryDecode(good, n);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("37"));
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(n)));
  }
  // A count that the payload cannot hold, with an output that fits the lie.
  for (uint32_t count : {0u, 1u, 36u, 38u, 1000u, 1u << 20, ~0u}) {
    std::vector<uint8_t> bad = good;
    std::memcpy(bad.data() + 8, &count, sizeof(count));
    FixFrameChecksum(bad);
    std::vector<float> values(std::min(count, 1u << 20));
    const size_t before = AllocatedBytes();
    const Status status = DecodeFrame(bad, work_, values);
    // Codes of a few bits leave room in their last byte: a few more coordinates may fit.
    const bool may_fit = count + 4 > 37 && count < 37 + 4;
    EXPECT_TRUE(!status.ok() || may_fit) << count;
    // Scratch for a tile, and for values as many as the caller has given room for.
    EXPECT_LT(AllocatedBytes() - before, 300000 + values.size() * sizeof(float)) << count;
  }
}

}  // namespace
}  // namespace elastiquant
