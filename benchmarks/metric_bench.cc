// What the metric of an optimiser costs a worker in a step, beside the same step without any
// conversion. In a step of a two-phase exchange, a worker encodes about as many values as its
// gradient has, decodes as many from others to add them up, and decodes as many means. Before
// that the gradient is copied to the exchange's buckets, and after it the mean is copied back,
// as the DDP hook does (ddp/staging.h); with the metric these copies also convert the values.
// The benchmark takes the processor time of one thread; both ways alternate, and the best round
// of each counts.
// `slower` is the time with the metric divided by the time without it.
//   metric_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/thread_clock.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/layers/metric.h"

namespace elastiquant {
namespace {

constexpr int kRounds = 60;

// A worker with the gradient of one matrix, and second moments that are like it.
struct Worker {
  explicit Worker(size_t n)
      : shapes{MakeParameterShape("matrix", std::vector<size_t>{n / 64, 64})},
        plan(PlanBuckets(shapes, {}).value()),
        metric(plan, shapes, {true}),
        gradient(n),
        v(n),
        values(n),
        mean(n),
        work(1) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::lognormal_distribution<float> sizes(0, 2);
    for (size_t i = 0; i < n; ++i) {
      const float size = sizes(generator);
      gradient[i] = size * normal(generator);
      v[i] = size * size;
    }
    converted = gradient;
    for (size_t i = 0; i < n; ++i) converted[i] /= std::sqrt(v[i]);
  }

  void Exchange(const Codec& codec) {
    frame.resize(codec.MaxFrameBytes(values.size()));
    const size_t size = codec.Encode(values, DeriveKey(1, 0, 0, 0), work, frame).value();
    const auto sent = std::span(frame).first(size);
    benchmark::DoNotOptimize(DecodeAddFrame(sent, 1, work, values).ok());
    benchmark::DoNotOptimize(DecodeFrame(sent, work, values).ok());
  }

  const std::vector<ParameterShape> shapes;
  const BucketPlan plan;
  Metric metric;
  std::vector<float> gradient, v, converted, values, mean;
  std::vector<uint8_t> frame;
  Workspace work;
};

void Compare(benchmark::State& state, const std::string& spec) {
  const auto codec = MakeCodec(spec).value();
  Worker worker(static_cast<size_t>(state.range(0)));
  if (!worker.metric.Set({worker.v}).ok()) return state.SkipWithError("no metric");
  double plain = std::numeric_limits<double>::infinity(), in_metric = plain;
  for (auto _ : state) {
    double begin = ThreadSeconds();
    std::ranges::copy(worker.converted, worker.values.begin());
    worker.Exchange(*codec);
    std::ranges::copy(worker.values, worker.mean.begin());
    plain = std::min(plain, ThreadSeconds() - begin);

    begin = ThreadSeconds();
    worker.metric.BeginStep();
    worker.metric.CopyIn(0, worker.gradient, worker.values.data());
    benchmark::DoNotOptimize(worker.metric.Name(0));
    worker.Exchange(*codec);
    worker.metric.CopyOut(0, worker.values, worker.mean.data());
    const double seconds = ThreadSeconds() - begin;
    in_metric = std::min(in_metric, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["plain_us"] = 1e6 * plain;
  state.counters["slower"] = in_metric / plain;
}

}  // namespace
}  // namespace elastiquant

int main(int argc, char** argv) {
  for (const char* spec : {"dither:bits=1", "dither:bits=2", "elastic:bits=4"}) {
    benchmark::RegisterBenchmark(spec, elastiquant::Compare, spec)
        ->Arg(1 << 16)
        ->Arg(1 << 20)
        ->UseManualTime()
        ->Iterations(elastiquant::kRounds)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
