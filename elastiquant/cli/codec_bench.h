// How fast a codec is, as a ratio to memcpy of the same buffer in the same run: the one figure
// that carries over from machine to machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant::cli {

// All speeds are GB/s (1e9 bytes) of the fp32 vector, each byte counted once, medians over the
// repetitions. A ratio is the median of memcpy's time over the operation's, both of the same
// repetition, so that a machine whose speed wanders does not bend it.
struct Speed {
  double gigabytes_per_second = 0;
  double ratio_to_memcpy = 0;
};
struct BenchResult {
  std::string spec;
  CodecClass codec_class{};
  size_t frame_bytes = 0;
  double bits_per_coordinate = 0;  // of the whole frame, header included
  double nmse = 0;                 // |Q(v)-v|^2 / |v|^2 of one draw
  double memcpy_gigabytes_per_second = 0;
  Speed encode, decode, decode_add;
};

struct BenchOptions {
  int repetitions = 0;  // 0: as many as fit in a second or so, at least 5
  uint64_t seed = 1;
};

// Buffers that all codecs of one run share, their pages touched.
class CodecBench {
 public:
  // `values` must outlive the bench.
  CodecBench(std::span<const float> values, int threads);

  Result<BenchResult> Run(const Codec& codec, const BenchOptions& options);

 private:
  struct Round;
  void Copy();
  Result<Round> RunRound(const Codec& codec, StreamKey key);

  std::span<const float> values_;
  std::vector<float> decoded_;
  std::vector<uint8_t> frame_;
  size_t frame_bytes_ = 0;
  Workspace work_;
};

// Independent standard normal numbers, the same on every call with the same seed.
std::vector<float> GaussianVector(size_t n, uint64_t seed);

}  // namespace elastiquant::cli
