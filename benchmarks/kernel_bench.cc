// What each step of the elastic codec costs, on one thread and in processor time: `GB/s` of
// fp32 input, and `memcpy`, the ratio to the speed of copying the same buffer. Both are of the
// best iteration, and the copies that a step is compared with alternate with its own
// iterations.
//   kernel_bench [--benchmark_filter=... ...] [elements [rounds [simd target]]]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/levels.h"
#include "elastiquant/kernels/dequantize.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/pack.h"
#include "elastiquant/kernels/quantize.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant {
namespace {

constexpr size_t kTile = 32768;
constexpr size_t kBucket = 512;

// What the steps work on.
struct Buffers {
  explicit Buffers(size_t n) : v(n), out(n), codes(kTile), work(1) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (float& x : v) x = normal(generator);
  }
  void Copy() { std::memcpy(out.data(), v.data(), v.size() * sizeof(float)); }

  std::vector<float> v, out;
  std::vector<uint8_t> codes;
  Workspace work;
};

// The processor time of this thread that a call takes: other programs on the machine do not
// count.
template <typename Step>
double SecondsOf(const Step& step) {
  timespec begin{}, end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  step();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) +
         1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
}

template <typename Step>
void Measure(benchmark::State& state, Buffers& buffers, const Step& step) {
  double best = std::numeric_limits<double>::infinity(), best_copy = best;
  for (auto _ : state) {
    best_copy = std::min(best_copy, SecondsOf([&] { buffers.Copy(); }));
    const double seconds = SecondsOf(step);
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
    benchmark::ClobberMemory();
  }
  const auto bytes = static_cast<double>(buffers.v.size() * sizeof(float));
  state.counters["GB/s"] = bytes / best / 1e9;
  state.counters["memcpy"] = best_copy / best;
}

class Bench {
 public:
  Bench(size_t elements, int rounds)
      : buffers_(std::make_shared<Buffers>(elements)), rounds_(rounds) {
    AddKernels();
    AddQuantizers();
    AddTiles();
    for (const char* spec :
         {"elastic", "elastic:bits=2", "elastic:p=0.5", "elastic:levels=uniform",
          "elastic:p=0.69", "elastic:levels=uniform,rounding=dither", "elastic:p=0.5,norm=l2",
          "elastic:bits=2,levels=uniform", "elastic:bits=8", "elastic:bits=8,levels=uniform"}) {
      AddCodec(spec);
    }
  }

 private:
  void Register(const std::string& name, std::function<void(benchmark::State&)> run) {
    benchmark::RegisterBenchmark(name.c_str(), std::move(run))
        ->UseManualTime()
        ->Iterations(rounds_)
        ->Unit(benchmark::kMillisecond);
  }

  // step(buffers).
  template <typename Step>
  void Add(const std::string& name, Step step) {
    Register(name, [buffers = buffers_, step](benchmark::State& state) {
      Measure(state, *buffers, [&] { step(*buffers); });
    });
  }

  // step(buffers, first coordinate, count) for each bucket.
  template <typename Step>
  void AddByBucket(const std::string& name, Step step) {
    Add(name, [step](Buffers& b) {
      for (size_t i = 0; i < b.v.size(); i += kBucket) {
        step(b, i, std::min(kBucket, b.v.size() - i));
      }
    });
  }

  // step(buffers, first coordinate) for each tile.
  template <typename Step>
  void AddByTile(const std::string& name, Step step) {
    Add(name, [step](Buffers& b) {
      for (size_t i = 0; i + kTile <= b.v.size(); i += kTile) step(b, i);
    });
  }

  void AddKernels() {
    Add("memcpy", [](Buffers& b) { b.Copy(); });
    AddByBucket("abs max", [](Buffers& b, size_t i, size_t n) {
      benchmark::DoNotOptimize(AbsMaxBits(&b.v[i], n));
    });
    AddByBucket("sum of squares", [](Buffers& b, size_t i, size_t n) {
      benchmark::DoNotOptimize(SumSquares(&b.v[i], n));
    });
    Add("crc of 1/8", [](Buffers& b) {
      benchmark::DoNotOptimize(
          Crc32c({reinterpret_cast<const uint8_t*>(b.out.data()), b.out.size() / 2}));
    });
  }

  // kernel(values, count, random numbers, scaler, codes) for each bucket.
  template <typename Kernel>
  void AddQuantizer(const std::string& name, float top, Kernel kernel) {
    AddByBucket("quantise " + name,
                [kernel, scaler = MakeScaler(5.5f, top)](Buffers& b, size_t i, size_t n) {
                  const RandomRun random{{1, 2}, static_cast<uint32_t>(i)};
                  kernel(&b.v[i], n, random, scaler, b.codes.data() + i % kTile);
                });
  }

  void AddQuantizers() {
    AddQuantizer("uniform 4", UniformTop(4),
                 [](auto v, auto n, auto random, auto& scaler, auto out) {
                   QuantizeUniform(v, n, random, scaler, 4, out);
                 });
    AddQuantizer("p=1/2 4", 1, [](auto v, auto n, auto random, auto& scaler, auto out) {
      QuantizeHalving(v, n, random, scaler, 4, out);
    });
    constexpr float kFitted[] = {.03f, .1f, .18f, .28f, .39f, .52f, .71f, 1};
    AddLevels("8 levels", ExponentialLevels(4, .69f)->span(), 4);
    AddLevels("8 levels without zero", kFitted, 4);
    AddLevels("128 levels", ExponentialLevels(8, .95f)->span(), 8);
  }

  void AddLevels(const std::string& name, std::span<const float> levels, int bits) {
    const auto table = std::make_shared<LevelTable>();
    FillLevelTable(levels, table.get());
    AddQuantizer(name, 1, [table, bits](auto v, auto n, auto random, auto& scaler, auto out) {
      QuantizeLevels(v, n, random, scaler, *table, bits, out);
    });
  }

  void AddTiles() {
    AddByTile("pack 4", [](Buffers& b, size_t i) {
      PackCodes(b.codes.data(), kTile, 4, reinterpret_cast<uint8_t*>(b.out.data()) + i / 2);
    });
    AddByTile("unpack 4", [](Buffers& b, size_t i) {
      UnpackCodes(reinterpret_cast<const uint8_t*>(b.v.data()) + i / 2, kTile, 4,
                  b.codes.data());
    });
    const auto values = std::make_shared<ValueTable>();
    FillValueTable(ExponentialLevels(4, .69f)->span(), 4, values.get());
    AddByBucket("dequantise-add 4", [values](Buffers& b, size_t i, size_t n) {
      DequantizeLevels(b.codes.data() + i % kTile, n, *values, 2, {true, .5f}, &b.out[i]);
    });
  }

  void AddCodec(const std::string& spec) {
    const auto codec = MakeCodec(spec).value();
    const auto encode = [buffers = buffers_, codec](std::vector<uint8_t>& frame) {
      return codec->Encode(buffers->v, {7}, buffers->work, frame).value();
    };
    Register(spec + " encode", [buffers = buffers_, codec, encode](benchmark::State& state) {
      std::vector<uint8_t> frame(codec->MaxFrameBytes(buffers->v.size()));
      Measure(state, *buffers, [&] { benchmark::DoNotOptimize(encode(frame)); });
    });
    Register(spec + " decode-add", [buffers = buffers_, codec,
                                    encode](benchmark::State& state) {
      std::vector<uint8_t> frame(codec->MaxFrameBytes(buffers->v.size()));
      frame.resize(encode(frame));
      Measure(state, *buffers, [&] {
        benchmark::DoNotOptimize(DecodeAddFrame(frame, .25f, buffers->work, buffers->out).ok());
      });
    });
  }

  const std::shared_ptr<Buffers> buffers_;
  const int rounds_;
};

}  // namespace
}  // namespace elastiquant

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const size_t elements = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 25'000'000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  if (argc > 3) {
    if (const auto status = elastiquant::UseSimdTarget(argv[3]); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  benchmark::AddCustomContext("floats", std::to_string(elements));
  benchmark::AddCustomContext("SIMD target", elastiquant::CurrentSimdTarget());
  const elastiquant::Bench bench(elements, rounds);
  benchmark::RunSpecifiedBenchmarks();
}
