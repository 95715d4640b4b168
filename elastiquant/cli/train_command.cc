// `train`: trains a model, on this machine's workers or as one worker of a torchrun job.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/base/standard_streams.h"
#include "elastiquant/c10d/gloo_network.h"
#include "elastiquant/c10d/tcp_store.h"
#include "elastiquant/cli/command.h"
#include "elastiquant/cli/train_flags.h"
#include "elastiquant/net/links.h"
#include "elastiquant/runs/launcher.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/train_options.h"
#include "elastiquant/train/trainer.h"

namespace elastiquant::cli {
namespace {

std::vector<std::string> OwnCommandLine() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

// As a shell would take it again.
std::string Quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    const bool plain = word.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789-_=+:,./@%^") == std::string::npos;
    if (plain && !word.empty()) {
      line += word;
      continue;
    }
    line += '\'';
    for (char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

bool StartedByTorchrun() {
  return std::getenv("RANK") && std::getenv("WORLD_SIZE") && std::getenv("MASTER_ADDR");
}

Status RunAsWorker(const TrainOptions& options, CommunicatorOptions where, int workers_here) {
  where.network = MakeGlooNetwork();
  where.timeout = Milliseconds(options.timeout_seconds);
  where.stall_timeout = Milliseconds(options.stall_timeout_seconds);
  if (!options.link.empty()) {
    EQ_ASSIGN_OR_RETURN(const Links links, ReadLinks(options.link));
    EQ_RETURN_IF_ERROR(links.Check(where.world_size));
    where.link = links.access;
    where.wires = links.WiresOf(where.rank);
  }
  const RunInfo info{.command_line = Quoted(OwnCommandLine()),
                     .version = ELASTIQUANT_VERSION,
                     .workers_here = workers_here};
  Status status = TrainAsWorker(options, where, info);
  if (!status.ok() && status.message().empty()) {
    std::_Exit(ExitCodeOf(status));  // another worker has said what is wrong
  }
  return status;
}

Status RunUnderTorchrun(TrainFlags flags) {
  EQ_ASSIGN_OR_RETURN(const CommunicatorOptions where, OptionsFromEnvironment());
  if (flags.workers_given->count() > 0 && flags.train.workers != where.world_size) {
    return InvalidArgument(fmt::format(
        "--workers is {}, but torchrun started {}; leave --workers out under torchrun",
        flags.train.workers, where.world_size));
  }
  flags.train.workers = where.world_size;
  EQ_RETURN_IF_ERROR(ValidateOptions(flags.train));
  const char* local = std::getenv("LOCAL_WORLD_SIZE");
  return RunAsWorker(flags.train, where, local ? std::atoi(local) : 1);
}

// Threads that share a core wait for each other in busy loops: ResNet-20 on 4 workers with 2
// threads each took more than ten times as long on 2 cores as with 1.
void WarnOfTooManyThreads(const TrainOptions& options) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  // The others rest where worker 0 alone computes.
  const Result<Algorithm> algorithm = ParseAlgorithm(options.algorithm);
  const bool one_computes = algorithm.ok() && algorithm->central;
  const int64_t computing = one_computes ? 1 : options.workers;
  const bool fit = options.threads <= 1 || computing * options.threads <= cores;
  if (cores == 0 || computing == 1 || fit) return;
  Warn(
      fmt::format("{} workers with --threads {} share {} cores, and steps may take many times "
                  "as long as without --threads, which divides the cores",
                  computing, options.threads, cores));
}

// What the launcher runs in each process that it forks. Returns the process's exit code.
int RunAsForkedWorker(const TrainOptions& options, int rank, uint16_t store_port) {
  CommunicatorOptions where;
  where.rank = rank;
  where.world_size = options.workers;
  where.store_port = store_port;
  where.store_is_external = true;  // the launcher hosts it
  return TellEnd("train", RunAsWorker(options, where, options.workers));
}

Status Launch(const TrainFlags& flags) {
  const TrainOptions& options = flags.train;
  if (options.workers > kTestedWorkers) {
    Warn(fmt::format("{} workers; up to {} are tested", options.workers, kTestedWorkers));
  }
  WarnOfTooManyThreads(options);
  if (options.workers == 1) return RunAsWorker(options, {}, 1);
  return LaunchWorkers({.worker = std::bind_front(RunAsForkedWorker, options),
                        .workers = options.workers,
                        .port = flags.port,
                        .linger = 2 * Milliseconds(options.timeout_seconds),
                        .go_on = options.on_loss == "go-on"});
}

Status RunTrain(const TrainFlags& flags) {
  WaitBrieflyForNames();
  // How many workers there are is known only there, and what is valid depends on it.
  if (StartedByTorchrun()) return RunUnderTorchrun(flags);
  EQ_RETURN_IF_ERROR(ValidateOptions(flags.train));
  return Launch(flags);
}

constexpr char kTrainExample[] =
    "  elastiquant train --model resnet20 --data generated --workers 4 --epochs 3 \\\n"
    "    --codec 'elastic:bits=4' --link 20mbit --out runs/elastic4\n"
    "On several machines, one worker each, started on every one of them:\n"
    "  torchrun --no-python --nnodes 4 --nproc-per-node 1 --rdzv-backend c10d \\\n"
    "    --rdzv-endpoint HOST:29500 elastiquant train --epochs 3 --out runs/four";

}  // namespace

Command MakeTrainCommand(CLI::App& program) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* app = AddSubcommand(program, "train", "Train a model over a compressed all-reduce",
                                kTrainExample);
  AddTrainFlags(*app, *flags);
  return {app, [flags] { return RunTrain(WithDefaults(*flags)); }};
}

}  // namespace elastiquant::cli
