#include "elastiquant/cli/codec_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>

#include "elastiquant/base/median.h"
#include "elastiquant/base/random.h"
#include "elastiquant/base/stopwatch.h"

namespace elastiquant::cli {
namespace {

constexpr int kMinRepetitions = 5;
constexpr int kMaxRepetitions = 200;
constexpr double kSecondsPerCodec = 1.5;

double SecondsOf(const std::function<void()>& work) {
  const Stopwatch watch;
  work();
  return watch.Seconds();
}

double NormalisedSquaredError(std::span<const float> values, std::span<const float> decoded) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i];
    const double d = decoded[i] - v;
    error += d * d;
    norm += v * v;
  }
  return norm > 0 ? error / norm : error;
}

int Repetitions(const BenchOptions& options, double round_seconds) {
  if (options.repetitions > 0) return options.repetitions;
  const double fitting = kSecondsPerCodec / std::max(round_seconds, 1e-6);
  return static_cast<int>(std::clamp<double>(fitting, kMinRepetitions, kMaxRepetitions));
}

}  // namespace

// Seconds of one repetition.
struct CodecBench::Round {
  double copy = 0, encode = 0, decode = 0, decode_add = 0;
  double total() const { return copy + encode + decode + decode_add; }
};

CodecBench::CodecBench(std::span<const float> values, int threads)
    : values_(values), decoded_(values.size()), work_(threads) {}

// memcpy with as many threads as the codec has.
void CodecBench::Copy() {
  const size_t parts = static_cast<size_t>(work_.threads());
  const size_t n = values_.size();
  work_.ParallelFor(parts, [&](size_t part, int) {
    const size_t begin = n * part / parts;
    const size_t end = n * (part + 1) / parts;
    if (begin < end) {
      std::memcpy(decoded_.data() + begin, values_.data() + begin,
                  (end - begin) * sizeof(float));
    }
  });
}

Result<CodecBench::Round> CodecBench::RunRound(const Codec& codec, StreamKey key) {
  Round round;
  Status status;
  round.copy = SecondsOf([&] { Copy(); });
  round.encode = SecondsOf([&] {
    const auto bytes = codec.Encode(values_, key, work_, frame_);
    bytes.ok() ? void(frame_bytes_ = *bytes) : void(status = bytes.status());
  });
  EQ_RETURN_IF_ERROR(status);
  const std::span<const uint8_t> frame(frame_.data(), frame_bytes_);
  round.decode_add = SecondsOf([&] { status = DecodeAddFrame(frame, 0.25f, work_, decoded_); });
  EQ_RETURN_IF_ERROR(status);
  round.decode = SecondsOf([&] { status = DecodeFrame(frame, work_, decoded_); });
  EQ_RETURN_IF_ERROR(status);
  return round;
}

Result<BenchResult> CodecBench::Run(const Codec& codec, const BenchOptions& options) {
  // assign() writes every page, so that no page fault falls into a measurement.
  frame_.assign(codec.MaxFrameBytes(values_.size()), 0);
  const StreamKey key = DeriveKey(options.seed, 0, 0, 0);
  EQ_ASSIGN_OR_RETURN(const Round warm_up, RunRound(codec, key));
  const double n = static_cast<double>(values_.size());
  BenchResult result;
  result.spec = codec.spec();
  result.codec_class = codec.codec_class();
  result.frame_bytes = frame_bytes_;
  result.bits_per_coordinate = 8.0 * static_cast<double>(frame_bytes_) / n;
  result.nmse = NormalisedSquaredError(values_, decoded_);

  std::vector<Round> rounds(static_cast<size_t>(Repetitions(options, warm_up.total())));
  for (Round& round : rounds) {
    EQ_ASSIGN_OR_RETURN(round, RunRound(codec, key));
  }
  const auto speed = [&](double Round::*operation) {
    std::vector<double> seconds, ratios;
    for (const Round& round : rounds) {
      seconds.push_back(round.*operation);
      ratios.push_back(round.copy / round.*operation);
    }
    return Speed{n * sizeof(float) / Median(seconds) / 1e9, Median(ratios)};
  };
  result.memcpy_gigabytes_per_second = speed(&Round::copy).gigabytes_per_second;
  result.encode = speed(&Round::encode);
  result.decode = speed(&Round::decode);
  result.decode_add = speed(&Round::decode_add);
  return result;
}

std::vector<float> GaussianVector(size_t n, uint64_t seed) {
  std::vector<float> values(n);
  // A worker that there is none of: values must not be made of the numbers that round them.
  const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, 0, ~uint64_t{0}, 0));
  for (size_t i = 0; i < n; i += 2) {  // Box and Muller, 1958
    // (0, 1]: the logarithm must stay finite.
    const float u = 1.0f - UniformFloat(RandomBits(keys, static_cast<uint32_t>(i)));
    const float v = UniformFloat(RandomBits(keys, static_cast<uint32_t>(i + 1)));
    const float radius = std::sqrt(-2.0f * std::log(u));
    const float angle = 2.0f * std::numbers::pi_v<float> * v;
    values[i] = radius * std::cos(angle);
    if (i + 1 < n) values[i + 1] = radius * std::sin(angle);
  }
  return values;
}

}  // namespace elastiquant::cli
