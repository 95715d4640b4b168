// What a round of gossip costs a worker on a ring beside computing its gradient, compared with
// the codec alone, which encodes the worker's message, decodes it again and decodes those of
// two neighbours. The rest of a round moves replicas and mixes them. The benchmark takes the
// processor time of one thread, and the best round of each counts.
// `codecs` is the time of a round divided by that of the codec, and `copies` is the time of a
// round divided by that of copying the weights once.
//   gossip_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/thread_clock.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/graph/graph.h"
#include "elastiquant/protocol/gossip/gossip.h"

namespace elastiquant {
namespace {

constexpr int kWorkers = 4, kRounds = 12;

std::vector<float> Gaussian(size_t n, float size) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

using Nodes = std::vector<std::unique_ptr<GossipNode>>;

Nodes Ring(GossipKind kind, const std::string& codec, std::span<const float> start) {
  const auto ring = Graph::Parse("ring", kWorkers, 1).value();
  Nodes nodes;
  for (int rank = 0; rank < kWorkers; ++rank) {
    nodes.push_back(GossipNode::Make({.kind = kind,
                                      .rank = rank,
                                      .graph = ring,
                                      .elements = start.size(),
                                      .codec = codec,
                                      .step = 0.3},
                                     start)
                        .value());
  }
  return nodes;
}

// Runs a round of all workers, and returns what it has taken the first of them.
double Round(const Nodes& nodes, std::span<const float> moved) {
  struct Letter {
    int from, to;
    std::vector<uint8_t> bytes;
  };
  std::vector<Letter> mail;
  double seconds = 0;
  for (int rank = 0; rank < kWorkers; ++rank) {
    GossipSends sends;
    const auto post = [&] {
      for (const GossipSend& s : sends) {
        mail.push_back({rank, s.to, {s.bytes.begin(), s.bytes.end()}});
      }
    };
    GossipNode& node = *nodes[static_cast<size_t>(rank)];
    const double begun = Timed([&] { sends = node.OnRound().value(); });
    post();
    const double moving = Timed([&] { sends = node.OnMoved(moved).value(); });
    post();
    if (rank == 0) seconds += begun + moving;
  }
  for (const Letter& letter : mail) {
    GossipNode& node = *nodes[static_cast<size_t>(letter.to)];
    const double taken =
        Timed([&] { (void)node.OnMessage(letter.from, letter.bytes).value(); });
    if (letter.to == 0) seconds += taken;
  }
  return seconds;
}

// What the codec takes of such a round.
double CodecAlone(const Codec& codec, std::span<const float> moved) {
  Workspace work;
  std::vector<uint8_t> frame(codec.MaxFrameBytes(moved.size()));
  std::vector<float> decoded(moved.size());
  return Timed([&] {
    const size_t size = codec.Encode(moved, DeriveKey(1, 0, 0, 0), work, frame).value();
    for (int message = 0; message < 3; ++message) {
      benchmark::DoNotOptimize(DecodeFrame(std::span(frame).first(size), work, decoded).ok());
    }
  });
}

double Copy(std::span<const float> values) {
  std::vector<float> copy(values.size());
  return Timed([&] {
    std::memcpy(copy.data(), values.data(), values.size_bytes());
    benchmark::DoNotOptimize(copy.data());
    benchmark::ClobberMemory();
  });
}

void Compare(benchmark::State& state, GossipKind kind, const std::string& spec) {
  const auto n = static_cast<size_t>(state.range(0));
  const std::vector<float> start = Gaussian(n, 0.02f), moved = Gaussian(n, 0.001f);
  const auto codec = MakeCodec(spec).value();
  const Nodes nodes = Ring(kind, spec, start);
  double round = std::numeric_limits<double>::infinity(), alone = round, copy = round;
  for (auto _ : state) {
    alone = std::min(alone, CodecAlone(*codec, moved));
    copy = std::min(copy, Copy(moved));
    const double seconds = Round(nodes, moved);
    round = std::min(round, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["codecs"] = round / alone;
  state.counters["copies"] = round / copy;
}

}  // namespace
}  // namespace elastiquant

int main(int argc, char** argv) {
  using elastiquant::GossipKind;
  const std::vector<std::pair<std::string, GossipKind>> kinds = {
      {"choco", GossipKind::kChoco},
      {"deepsqueeze", GossipKind::kDeepSqueeze},
      {"dpsgd", GossipKind::kDpsgd}};
  for (const auto& [name, kind] : kinds) {
    for (const char* spec : {"dither:bits=1", "elastic:bits=4", "fp32"}) {
      const auto compare = [kind = kind, spec](benchmark::State& state) {
        elastiquant::Compare(state, kind, spec);
      };
      benchmark::RegisterBenchmark((name + "/" + spec).c_str(), compare)
          ->Arg(1 << 16)
          ->Arg(10 << 20)
          ->UseManualTime()
          ->Iterations(elastiquant::kRounds)
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
