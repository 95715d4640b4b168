// What the metric of an optimiser costs: a message is converted, encoded, decoded and converted
// back, beside the same values in a message without any conversion. On one thread and in
// processor time; both ways alternate, and the best round of each counts. `slower` is the one
// time divided by the other.
//   metric_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/layers/metric.h"

namespace elastiquant {
namespace {

constexpr int kRounds = 60;

double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A message of one matrix: gradients, and second moments that are like them.
struct Message {
  explicit Message(size_t n)
      : shapes{MakeParameterShape("matrix", std::vector<size_t>{n / 64, 64})},
        plan(PlanBuckets(shapes, {}).value()),
        metric(plan, shapes, {true}),
        gradient(n),
        v(n),
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

  void GoThrough(const Codec& codec) {
    frame.resize(codec.MaxFrameBytes(values.size()));
    const size_t size = codec.Encode(values, DeriveKey(1, 0, 0, 0), work, frame).value();
    benchmark::DoNotOptimize(DecodeFrame(std::span(frame).first(size), work, values).ok());
  }

  const std::vector<ParameterShape> shapes;
  const BucketPlan plan;
  Metric metric;
  std::vector<float> gradient, v, converted, values;
  std::vector<uint8_t> frame;
  Workspace work;
};

void Compare(benchmark::State& state, const std::string& spec) {
  const auto codec = MakeCodec(spec).value();
  Message message(static_cast<size_t>(state.range(0)));
  if (!message.metric.Set({message.v}).ok()) return state.SkipWithError("no metric");
  double plain = std::numeric_limits<double>::infinity(), in_metric = plain;
  for (auto _ : state) {
    message.values = message.converted;
    double begin = Seconds();
    message.GoThrough(*codec);
    plain = std::min(plain, Seconds() - begin);

    message.values = message.gradient;
    begin = Seconds();
    message.metric.BeginStep();
    benchmark::DoNotOptimize(message.metric.Enter(0, message.values));
    message.GoThrough(*codec);
    message.metric.Leave(0, message.values);
    const double seconds = Seconds() - begin;
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
