// Speed and rate of the index coders on tiles of 32768 codes, single thread. `memcpy` is the
// share of the fp32 gradient's copying speed in the same run: 1 means that coding takes as long
// as copying the floats that the codes stand for.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/coding/index_coding.h"

namespace elastiquant {
namespace {

constexpr size_t kTile = 32768;
constexpr size_t kRun = 512;

// Bytes a nanosecond of copying 64 MiB, best of five.
double MemcpySpeed() {
  static const double speed = [] {
    const std::vector<float> from(size_t{1} << 24, 1.0f);
    std::vector<float> to(from.size());
    double best = 1e30;
    for (int i = 0; i < 5; ++i) {
      const std::clock_t begin =
          std::clock();  // processor time, as the benchmarks are measured
      std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
      benchmark::DoNotOptimize(to.data());
      const double time = 1e9 / CLOCKS_PER_SEC * static_cast<double>(std::clock() - begin);
      best = std::min(best, time);
    }
    return static_cast<double>(from.size() * sizeof(float)) / best;
  }();
  return speed;
}

// Codes of uniform levels up to three standard deviations of a Gaussian for sharpness 0, and of
// less and less entropy for 1, 2, ...
std::vector<uint8_t> GaussianCodes(int bits, int64_t sharpness) {
  const LaneKeys keys = MakeLaneKeys({42});
  const int half = 1 << (bits - 1);
  std::vector<uint8_t> codes(kTile);
  for (uint32_t i = 0; i < kTile; ++i) {
    double x = -6;  // sum of 12 uniforms
    for (uint32_t j = 0; j < 12; ++j) x += UniformFloat(RandomBits(keys, 12 * i + j));
    const double scaled = std::abs(x) / 3 * half / static_cast<double>(1 << sharpness);
    const int level = std::min(half - 1, static_cast<int>(scaled));
    codes[i] = static_cast<uint8_t>(level == 0 ? 0 : (x < 0 ? half : 0) + level);
  }
  return codes;
}

struct Coded {
  std::vector<uint8_t> codes, bytes;
  size_t size = 0;
};

Coded Prepare(benchmark::State& state, IndexCoding coding, int bits) {
  Coded coded;
  coded.codes = GaussianCodes(bits, state.range(1));
  coded.bytes.resize(MaxIndexBytes(coding, kTile, bits, kTile / kRun));
  auto size = EncodeIndices(coding, coded.codes, bits, kRun, coded.bytes);
  if (!size.ok()) state.SkipWithError(size.status().ToString().c_str());
  coded.size = size.ok() ? *size : 0;
  return coded;
}

void Report(benchmark::State& state, size_t size) {
  const auto floats = static_cast<double>(kTile * static_cast<size_t>(state.iterations()));
  state.SetBytesProcessed(static_cast<int64_t>(floats * sizeof(float)));
  state.counters["bits"] = 8.0 * static_cast<double>(size) / kTile;
  state.counters["ns/code"] = benchmark::Counter(
      floats * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["memcpy"] = benchmark::Counter(floats * sizeof(float) * 1e-9 / MemcpySpeed(),
                                                benchmark::Counter::kIsRate);
}

void Encode(benchmark::State& state, IndexCoding coding) {
  const int bits = static_cast<int>(state.range(0));
  Coded coded = Prepare(state, coding, bits);
  MemcpySpeed();
  for (auto _ : state) {
    auto size = EncodeIndices(coding, coded.codes, bits, kRun, coded.bytes);
    benchmark::DoNotOptimize(size);
  }
  Report(state, coded.size);
}

void Decode(benchmark::State& state, IndexCoding coding) {
  const int bits = static_cast<int>(state.range(0));
  Coded coded = Prepare(state, coding, bits);
  MemcpySpeed();
  for (auto _ : state) {
    const Status status =
        DecodeIndices(coding, {coded.bytes.data(), coded.size}, bits, kRun, coded.codes);
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    benchmark::ClobberMemory();
  }
  Report(state, coded.size);
}

void FixedArguments(benchmark::internal::Benchmark* b) {
  for (int bits : {2, 3, 4, 5, 8}) b->Args({bits, 0});
  b->ArgNames({"bits", "sharpness"});
}
void CodedArguments(benchmark::internal::Benchmark* b) {
  for (int sharpness : {0, 1, 2, 3}) b->Args({4, sharpness});
  for (int bits : {2, 3, 5, 8}) b->Args({bits, 0});
  b->ArgNames({"bits", "sharpness"});
}
BENCHMARK_CAPTURE(Encode, fixed, IndexCoding::kFixed)->Apply(FixedArguments);
BENCHMARK_CAPTURE(Decode, fixed, IndexCoding::kFixed)->Apply(FixedArguments);
BENCHMARK_CAPTURE(Encode, elias, IndexCoding::kElias)->Apply(CodedArguments);
BENCHMARK_CAPTURE(Decode, elias, IndexCoding::kElias)->Apply(CodedArguments);
BENCHMARK_CAPTURE(Encode, rans, IndexCoding::kRans)->Apply(CodedArguments);
BENCHMARK_CAPTURE(Decode, rans, IndexCoding::kRans)->Apply(CodedArguments);

}  // namespace
}  // namespace elastiquant

BENCHMARK_MAIN();
