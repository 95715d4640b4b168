// Speed and size of `chunktopk`, single thread, on Gaussian values: of choosing what is kept,
// of coding it (positions and values to bytes and back), and of whole messages, beside `topk`.
// `kept/s` counts kept values. `memcpy` is the share of the fp32 message's copying speed in the
// same run: 1 means that it takes as long as copying all values, kept or not. `fewer` is how
// many times fewer bytes it takes than fp32.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/sparse/chunk_format.h"
#include "elastiquant/codec/sparse/chunk_quantize.h"
#include "elastiquant/coding/chunk_positions.h"
#include "elastiquant/kernels/sparse/largest.h"

namespace elastiquant {
namespace {

constexpr size_t kLength = size_t{1} << 22;
constexpr size_t kChunkLength = 4096;

const std::vector<float>& Message() {
  static const std::vector<float> message = [] {
    const LaneKeys keys = MakeLaneKeys({42});
    std::vector<float> values(kLength);
    for (uint32_t i = 0; i < kLength; ++i) {
      float x = -6;  // sum of 12 uniforms
      for (uint32_t j = 0; j < 12; ++j) x += UniformFloat(RandomBits(keys, 12 * i + j));
      values[i] = 1e-3f * x;
    }
    return values;
  }();
  return message;
}

// Bytes a nanosecond of copying the message, best of five.
double MemcpySpeed() {
  static const double speed = [] {
    std::vector<float> to(kLength);
    double best = 1e30;
    for (int i = 0; i < 5; ++i) {
      const std::clock_t begin =
          std::clock();  // processor time, as the benchmarks are measured
      std::memcpy(to.data(), Message().data(), kLength * sizeof(float));
      benchmark::DoNotOptimize(to.data());
      best = std::min(best, 1e9 / CLOCKS_PER_SEC * static_cast<double>(std::clock() - begin));
    }
    return kLength * sizeof(float) / best;
  }();
  return speed;
}

// Of iterations that take `values` values each, of which so many are kept in so many bytes.
void Report(benchmark::State& state, size_t values, size_t kept, size_t bytes) {
  const auto times = static_cast<double>(state.iterations());
  const double fp32 = static_cast<double>(values) * sizeof(float);
  state.counters["kept/s"] =
      benchmark::Counter(times * static_cast<double>(kept), benchmark::Counter::kIsRate);
  state.counters["memcpy"] =
      benchmark::Counter(times * fp32 * 1e-9 / MemcpySpeed(), benchmark::Counter::kIsRate);
  if (bytes == 0) return;
  state.counters["bits/kept"] = 8 * static_cast<double>(bytes) / static_cast<double>(kept);
  state.counters["fewer"] = fp32 / static_cast<double>(bytes);
}

void Select(benchmark::State& state) {
  const auto keep = static_cast<size_t>(state.range(0));
  const auto chunks = static_cast<size_t>(state.range(1));
  std::vector<uint32_t> scratch(LargestScratch(kChunkLength));
  std::vector<uint16_t> positions(keep);
  MemcpySpeed();
  for (auto _ : state) {
    uint32_t guess = 1;
    for (size_t c = 0; c < chunks; ++c) {
      const FloatRows rows{Message().data() + c * kChunkLength, 1, kChunkLength, 0};
      benchmark::DoNotOptimize(
          SelectLargest(rows, keep, &guess, scratch.data(), positions.data()));
    }
  }
  Report(state, chunks * kChunkLength, chunks * keep, 0);
}
BENCHMARK(Select)
    ->ArgNames({"k", "chunks"})
    ->Args({64, 8})
    ->Args({64, 1024})
    ->Args({32, 1024})
    ->Args({16, 1024});

// One tile: what is kept of it, and room for its bytes.
struct CodedTile {
  CodedTile(int value_bits, uint32_t keep)
      : format{value_bits, {kChunkLength, keep}, 0},
        run(WholeRun(kLength)),
        geometry(format.rule, {&run, 1}),
        buffers(format, geometry, 0, work),
        tile(buffers.tile) {
    bytes.resize(MaxChunkTileBytes(value_bits, geometry.MostChunks(), geometry.MostKept()));
    std::vector<LevelSums> sums(format.levels());
    uint32_t guess = 1;
    size_t size = 0;
    for (size_t c = 0; c < tile.counts.size(); ++c, size += keep) {
      const FloatRows rows{Message().data() + c * kChunkLength, 1, kChunkLength, 0};
      SelectLargest(rows, keep, &guess, buffers.candidates.data(),
                    tile.positions.data() + size);
      for (size_t i = size; i < size + keep; ++i) {
        buffers.values[i] = rows.At(tile.positions[i]);
      }
      tile.counts[c] = static_cast<uint16_t>(keep);
      if (value_bits == kExactChunkBits) continue;
      const std::span<const float> kept = buffers.values.subspan(size, keep);
      tile.scales[c] = ChunkScale(kept).value();
      QuantizeChunk(kept, tile.scales[c], value_bits, tile.codes.data() + size, sums);
    }
    tile.values = buffers.values;
  }

  ChunkFormat format;
  PlacedRun run;
  ChunkGeometry geometry;
  Workspace work;
  ChunkBuffers buffers;
  ChunkTile& tile;
  std::vector<uint8_t> bytes;
};

void WriteTile(benchmark::State& state) {
  CodedTile coded(static_cast<int>(state.range(1)), static_cast<uint32_t>(state.range(0)));
  const int bits = coded.format.bits;
  const size_t kept = coded.tile.positions.size();
  std::vector<LevelSums> sums(coded.format.levels());
  size_t size = 0;
  MemcpySpeed();
  for (auto _ : state) {
    // Rounding the values is part of it.
    const size_t keep = coded.format.rule.kept;
    for (size_t c = 0; bits != kExactChunkBits && c < coded.tile.counts.size(); ++c) {
      const std::span<const float> values = coded.tile.values.subspan(c * keep, keep);
      coded.tile.scales[c] = ChunkScale(values).value();
      QuantizeChunk(values, coded.tile.scales[c], bits, coded.tile.codes.data() + c * keep,
                    sums);
    }
    size = WriteChunkTile(coded.tile, bits, true, coded.buffers.scratch, coded.bytes).value();
  }
  Report(state, coded.tile.counts.size() * kChunkLength, kept, size);
  const size_t positions = EncodeChunkPositions(coded.tile.counts, coded.tile.positions,
                                                coded.buffers.scratch, coded.bytes)
                               .value();
  state.counters["bits/position"] =
      8 * static_cast<double>(positions) / static_cast<double>(kept);
}

void ReadTile(benchmark::State& state) {
  CodedTile coded(static_cast<int>(state.range(1)), static_cast<uint32_t>(state.range(0)));
  const int bits = coded.format.bits;
  const size_t kept = coded.tile.positions.size();
  const size_t size =
      WriteChunkTile(coded.tile, bits, true, coded.buffers.scratch, coded.bytes).value();
  MemcpySpeed();
  for (auto _ : state) {
    const Status status =
        ReadChunkTile({coded.bytes.data(), size}, bits, coded.buffers.scratch, &coded.tile);
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    benchmark::ClobberMemory();
  }
  Report(state, coded.tile.counts.size() * kChunkLength, kept, size);
}

void TileArguments(benchmark::internal::Benchmark* b) {
  b->ArgNames({"k", "bits"});
  for (int k : {64, 32, 16}) b->Args({k, 2})->Args({k, kExactChunkBits});
}
BENCHMARK(WriteTile)->Apply(TileArguments);
BENCHMARK(ReadTile)->Apply(TileArguments);

// Without shapes, or as a matrix of 2048 columns.
std::shared_ptr<const Codec> CodecFor(const std::string& spec, bool matrix) {
  const auto codec = MakeCodec(spec).value();
  const TensorShape shape{kLength / 2048, 2048};
  return matrix ? CodecForShapes(codec, {&shape, 1}).value() : codec;
}

void Encode(benchmark::State& state, const std::string& spec, size_t of_64_ki, bool matrix) {
  const auto codec = CodecFor(spec, matrix);
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(kLength));
  size_t size = 0;
  MemcpySpeed();
  for (auto _ : state) size = codec->Encode(Message(), {1}, work, frame).value();
  Report(state, kLength, (kLength >> 16) * of_64_ki, size);
}

void Decode(benchmark::State& state, const std::string& spec, size_t of_64_ki, bool matrix) {
  const auto codec = CodecFor(spec, matrix);
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(kLength));
  frame.resize(codec->Encode(Message(), {1}, work, frame).value());
  std::vector<float> sum(kLength);
  MemcpySpeed();
  for (auto _ : state) {
    const Status status = DecodeAddFrame(frame, 0.5f, work, sum);
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    benchmark::ClobberMemory();
  }
  Report(state, kLength, (kLength >> 16) * of_64_ki, frame.size());
}

#define CHUNK_BENCHMARKS(name, spec, kept, matrix)     \
  BENCHMARK_CAPTURE(Encode, name, spec, kept, matrix); \
  BENCHMARK_CAPTURE(Decode, name, spec, kept, matrix)
CHUNK_BENCHMARKS(sparseloco, "chunktopk:k=64,bits=2", 1024, false);
CHUNK_BENCHMARKS(sparseloco_blocks, "chunktopk:k=64,bits=2", 1024, true);
CHUNK_BENCHMARKS(demo_32, "chunktopk:k=32,bits=exact", 512, false);
CHUNK_BENCHMARKS(demo_16, "chunktopk:k=16,bits=exact", 256, false);
CHUNK_BENCHMARKS(topk, "topk:ratio=0.015625,bits=4", 1024, false);
CHUNK_BENCHMARKS(topk_exact, "topk:ratio=0.0078125,bits=exact", 512, false);

}  // namespace
}  // namespace elastiquant

BENCHMARK_MAIN();
