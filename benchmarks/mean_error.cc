// What a way to the mean costs and loses: workers in one process average their gradients, and
// the result is held against the exact mean.
//   mean_error ROUNDS CODEC[/DOWN][@EXCHANGE]... -- GRADIENT.npy...
// DOWN is the codec of means on their way back; EXCHANGE as `train --exchange` takes it, auto
// if it is left out. A worker for each file (of `train --dump-gradients`), cut into buckets of
// 65536 coordinates. Prints the bits that a worker sends for each coordinate of a gradient in a
// step, headers and all, and the NMSE of the mean over the rounds.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/cli/npy.h"
#include "elastiquant/exchange/exchange_choice.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/net/memory/memory_network.h"

namespace elastiquant {
namespace {

constexpr size_t kBucket = 65536;

using Vectors = std::vector<std::vector<float>>;

// One way, and what came of it; worker 0's figures stand for all.
struct Way {
  std::string codec, down, exchange = "auto";
  std::string chosen;
  double bits = 0, nmse = 0;
};

Way ParseWay(const std::string& text) {
  const size_t at = text.find('@');
  Way way;
  way.codec = text.substr(0, at);
  if (const size_t slash = way.codec.find('/'); slash != std::string::npos) {
    way.down = way.codec.substr(slash + 1);
    way.codec.resize(slash);
  }
  if (at != std::string::npos) way.exchange = text.substr(at + 1);
  return way;
}

double SquaredDistance(const std::vector<float>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

Status Work(const CommunicatorOptions& options, int rounds, const Vectors& gradients,
            Way* way) {
  const size_t n = gradients[0].size();
  std::vector<double> mean(n);
  for (const auto& g : gradients) {
    for (size_t i = 0; i < n; ++i) mean[i] += g[i] / static_cast<double>(gradients.size());
  }
  EQ_ASSIGN_OR_RETURN(const auto comm, Communicator::Connect(options));
  EQ_ASSIGN_OR_RETURN(auto codec, MakeCodec(way->codec));
  std::shared_ptr<const Codec> down;
  if (!way->down.empty()) {
    EQ_ASSIGN_OR_RETURN(down, MakeCodec(way->down));
  }
  EQ_ASSIGN_OR_RETURN(
      const ExchangeChoice choice,
      ChooseExchange(std::move(codec), std::move(down), way->exchange, comm->world_size()));
  std::vector<float> mine(n);
  std::vector<GradientBucket> buckets;
  for (size_t at = 0; at < n; at += kBucket) {
    buckets.push_back({.gradient = std::span(mine).subspan(at, std::min(kBucket, n - at)),
                       .codec = choice.codec,
                       .name = std::to_string(at),
                       .exchange = choice.exchange,
                       .down = choice.down});
  }
  const size_t count = buckets.size();
  EQ_ASSIGN_OR_RETURN(const auto reducer,
                      GradientReducer::Create(comm.get(), std::move(buckets), {.seed = 1}));
  double error = 0;
  for (int round = 0; round < rounds; ++round) {
    mine = gradients[static_cast<size_t>(options.rank)];
    EQ_RETURN_IF_ERROR(reducer->BeginStep(static_cast<uint64_t>(round)));
    for (size_t b = 0; b < count; ++b) EQ_RETURN_IF_ERROR(reducer->MarkReady(b));
    EQ_ASSIGN_OR_RETURN(const StepOutcome outcome, reducer->Finish());
    if (outcome.skipped) return NonFinite(outcome.reason);
    error += SquaredDistance(mine, mean);
  }
  if (options.rank != 0) return {};
  way->chosen = choice.Describe();
  const double norm = SquaredDistance(std::vector<float>(n), mean);
  way->nmse = error / norm / rounds;
  way->bits =
      8.0 * static_cast<double>(comm->traffic().bytes_up) / static_cast<double>(n) / rounds;
  return {};
}

Status Run(const std::shared_ptr<Network>& network, const StoreHost& store, int rounds,
           const Vectors& gradients, Way* way) {
  static int jobs = 0;
  CommunicatorOptions options;
  options.world_size = static_cast<int>(gradients.size());
  options.network = network;
  options.store_port = store.port();
  options.store_is_external = true;
  options.job = "way" + std::to_string(jobs++);
  std::mutex mutex;
  Status status;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.world_size; ++rank) {
    threads.emplace_back([&, rank, options]() mutable {
      options.rank = rank;
      const Status mine = Work(options, rounds, gradients, way);
      const std::lock_guard lock(mutex);
      if (status.ok()) status = mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

Status Main(int argc, char** argv) {
  const int rounds = std::atoi(argv[1]);
  std::vector<Way> ways;
  int a = 2;
  for (; a < argc && std::string(argv[a]) != "--"; ++a) {
    ways.push_back(ParseWay(argv[a]));
  }
  Vectors gradients;
  for (++a; a < argc; ++a) {
    EQ_ASSIGN_OR_RETURN(auto array, cli::ReadNpy(argv[a]));
    gradients.push_back(std::move(array.values));
    if (gradients.back().size() != gradients[0].size()) {
      return InvalidArgument("gradients of different lengths");
    }
  }
  if (rounds < 1 || ways.empty() || gradients.empty()) return InvalidArgument("see the source");
  MemoryNetwork memory;
  const std::shared_ptr<Network> network = memory.At();
  EQ_ASSIGN_OR_RETURN(const auto store, network->HostStore(0, Reach::kThisMachine));
  std::printf("%-56s %8s %10s\n", "codec and exchange", "bits", "NMSE");
  for (Way& way : ways) {
    EQ_RETURN_IF_ERROR(Run(network, *store, rounds, gradients, &way));
    std::printf("%-56s %8.3f %10.4f\n", (way.codec + " " + way.chosen).c_str(), way.bits,
                way.nmse);
  }
  return {};
}

}  // namespace
}  // namespace elastiquant

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: mean_error ROUNDS CODEC[/DOWN][@EXCHANGE]... -- GRADIENT.npy...\n");
    return 2;
  }
  const elastiquant::Status status = elastiquant::Main(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
