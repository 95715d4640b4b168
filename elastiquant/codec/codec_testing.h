// What the tests of codecs share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame_testing.h"

namespace elastiquant {

inline std::shared_ptr<const Codec> Make(const std::string& spec) {
  auto codec = MakeCodec(spec);
  EXPECT_TRUE(codec.ok()) << spec << ": " << codec.status().ToString();
  return *codec;
}

inline std::vector<uint8_t> Encode(const Codec& codec, const std::vector<float>& v,
                                   StreamKey key, int threads = 1) {
  Workspace work(threads);
  std::vector<uint8_t> frame(codec.MaxFrameBytes(v.size()));
  const auto size = codec.Encode(v, key, work, frame);
  EXPECT_TRUE(size.ok()) << codec.spec() << ": " << size.status().ToString();
  frame.resize(size.ok() ? *size : 0);
  return frame;
}

inline std::vector<float> Decode(const std::vector<uint8_t>& frame, size_t n, int threads = 1) {
  Workspace work(threads);
  std::vector<float> values(n, -1e30f);
  const Status status = DecodeFrame(frame, work, values);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return values;
}

// What the receiver of one message gets.
inline std::vector<float> RoundTrip(const std::string& spec, const std::vector<float>& v,
                                    uint64_t key = 7) {
  return Decode(Encode(*Make(spec), v, {key}), v.size());
}

// Standard normal values.
inline std::vector<float> Gaussian(size_t n, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(generator);
  return v;
}

// |q - v|^2 / |v|^2.
inline double Nmse(const std::vector<float>& v, const std::vector<float>& q) {
  double error = 0, size = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    const double e = static_cast<double>(q[i]) - static_cast<double>(v[i]);
    error += e * e;
    size += static_cast<double>(v[i]) * static_cast<double>(v[i]);
  }
  return error / size;
}

// The mean of Nmse over messages of v under so many keys.
inline double MeanNmse(const std::string& spec, const std::vector<float>& v, int draws) {
  const auto codec = Make(spec);
  double sum = 0;
  for (int t = 0; t < draws; ++t) {
    const StreamKey key = DeriveKey(1, static_cast<uint64_t>(t), 0, 0);
    sum += Nmse(v, Decode(Encode(*codec, v, key), v.size()));
  }
  return sum / draws;
}

// Damages a frame of n values byte by byte, with the checksum made right again, and expects
// that each damaged frame is either refused as corrupt or decoded to finite values. `step(at)`
// says how many of the changes of the byte `at` are tried: all 255 if it is 1, every k-th if it
// is k, and none if it is 0. Returns how many of the damaged frames were refused.
template <typename Step>
size_t ExpectDamageIsRefusedOrHarmless(const std::vector<uint8_t>& frame, size_t n, Step step) {
  Workspace work;
  size_t refused = 0;
  for (size_t at = 0; at < frame.size(); ++at) {
    if (step(at) == 0) continue;
    for (int change = 1; change < 256; change += step(at)) {
      auto bad = frame;
      bad[at] = static_cast<uint8_t>(bad[at] ^ change);
      FixFrameChecksum(bad);
      std::vector<float> values(n);
      const Status status = DecodeFrame(bad, work, values);
      if (status.ok()) {
        EXPECT_TRUE(std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
            << "byte " << at;
      } else {
        EXPECT_EQ(status.code(), StatusCode::kCorruptData) << "byte " << at;
        ++refused;
      }
    }
  }
  return refused;
}

}  // namespace elastiquant
