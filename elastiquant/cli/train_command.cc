// `train`: trains a model, on this machine's workers or as one worker of a torchrun job.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "elastiquant/c10d/gloo_network.h"
#include "elastiquant/cli/command.h"
#include "elastiquant/net/links.h"
#include "elastiquant/runs/launcher.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/train_options.h"
#include "elastiquant/train/trainer.h"

namespace elastiquant::cli {
namespace {

struct TrainFlags {
  TrainOptions train;
  CLI::Option *workers_given = nullptr, *rate_given = nullptr, *decay_given = nullptr;
  CLI::Option* codec_given = nullptr;
  uint16_t port = 0;
  // Said by the launcher to its workers.
  int worker_rank = -1;
  uint16_t store_port = 0;
};

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
  std::vector<std::string> words = OwnCommandLine();
  // Those that the launcher added are no part of what was asked.
  if (const auto added = std::find(words.begin(), words.end(), "--worker-rank");
      added != words.end()) {
    words.erase(added, words.end());
  }
  const RunInfo info{.command_line = Quoted(words),
                     .version = ELASTIQUANT_VERSION,
                     .workers_here = workers_here};
  Status status = TrainAsWorker(options, where, info);
  if (!status.ok() && status.message().empty()) {
    std::_Exit(ExitCodeOf(status));  // another worker has said what is wrong
  }
  return status;
}

Status RunUnderTorchrun(const TrainFlags& flags) {
  EQ_ASSIGN_OR_RETURN(const CommunicatorOptions where, OptionsFromEnvironment());
  if (flags.workers_given->count() > 0 && flags.train.workers != where.world_size) {
    return InvalidArgument(fmt::format(
        "--workers is {}, but torchrun started {}; leave --workers out under torchrun",
        flags.train.workers, where.world_size));
  }
  const char* local = std::getenv("LOCAL_WORLD_SIZE");
  return RunAsWorker(flags.train, where, local ? std::atoi(local) : 1);
}

Status Launch(const TrainFlags& flags) {
  const TrainOptions& options = flags.train;
  if (options.workers > kTestedWorkers) {
    fmt::print(stderr, "warning: {} workers; up to {} are tested\n", options.workers,
               kTestedWorkers);
  }
  if (options.workers == 1) return RunAsWorker(options, {}, 1);
  return LaunchWorkers({.command = OwnCommandLine(),
                        .workers = options.workers,
                        .port = flags.port,
                        .linger = 2 * Milliseconds(options.timeout_seconds),
                        .go_on = options.on_loss == "go-on"});
}

// What is usual differs between algorithms and optimisers.
TrainFlags WithDefaults(TrainFlags flags) {
  const std::string codec = UsualCodecOf(flags.train);
  if (flags.codec_given->count() == 0 && !codec.empty()) flags.train.codec = codec;
  if (flags.train.optimizer != "adamw") return flags;
  if (flags.rate_given->count() == 0) flags.train.learning_rate = 1e-3;
  if (flags.decay_given->count() == 0) flags.train.weight_decay = 1e-2;
  return flags;
}

Status RunTrain(const TrainFlags& flags) {
  EQ_RETURN_IF_ERROR(ValidateOptions(flags.train));
  if (flags.worker_rank >= 0) {
    CommunicatorOptions where;
    where.rank = flags.worker_rank;
    where.world_size = flags.train.workers;
    where.store_port = flags.store_port;
    where.store_is_external = true;  // the launcher hosts it
    return RunAsWorker(flags.train, where, flags.train.workers);
  }
  return StartedByTorchrun() ? RunUnderTorchrun(flags) : Launch(flags);
}

void AddData(CLI::App& app, DataOptions& o) {
  app.add_option(
         "--data", o.data,
         "'generated', or a folder with CIFAR, idx or JPEG files; for gpt 'generated-text', "
         "or a file or folder of text")
      ->capture_default_str();
  app.add_flag("--augment,!--no-augment", o.augment, "Augment training images (the default)");
  app.add_option("--generated-train", o.generated_train, "Images in the generated training set")
      ->capture_default_str();
  app.add_option("--generated-test", o.generated_test, "Images in the generated test set")
      ->capture_default_str();
  app.add_option("--data-seed", o.data_seed, "Seed of the generated data set")
      ->capture_default_str();
  app.add_option("--image-size", o.image_size,
                 "Pixels along each side to which JPEG files are scaled");
  app.add_option("--partition", o.partition,
                 "Which worker has which training samples: iid (all have all), "
                 "dirichlet:alpha=A (classes spread unevenly), classes:k=K (K classes each) or "
                 "volumes:skew=S (some have S times as many as others)")
      ->capture_default_str();
}

void AddUpdate(CLI::App& app, TrainFlags& flags) {
  UpdateOptions& o = flags.train;
  app.add_option("--model", o.model, "Network to train; `elastiquant models` lists them")
      ->capture_default_str();
  app.add_option("--precision", o.precision,
                 "What matrices are multiplied in: fp32, or bf16, which is faster where the "
                 "processor has instructions for it; weights and gradients stay fp32")
      ->capture_default_str();
  app.add_option(
      "--init", o.init,
      "Start from the weights in this safetensors file; by default they are drawn from --seed");
  app.add_option("--steps", o.steps, "Steps to train, in place of --epochs");
  app.add_option("--epochs", o.epochs, "Passes over the training set")->capture_default_str();
  app.add_option("--batch", o.batch, "Images per worker and step")->capture_default_str();
  app.add_option("--seed", o.seed,
                 "Seed of the weights, the order of the data, augmentation and the codec")
      ->capture_default_str();
  app.add_option(
         "--algorithm", o.algorithm,
         "What is sent in a step: allreduce (the gradients), onebit-adam[:freeze=STEPS], "
         "zeroone-adam, demo; a part of the gradients for each worker: uniform, "
         "dagc-r[:rule=published|monotone], dagc-a or accordion; "
         "what workers have learnt alone: local-sgd, diloco or sparseloco; or "
         "gradients whose means come later: delayed; or those that have changed enough: "
         "lag-wk, lag-ps, laq or lasg; or the samples themselves: "
         "quantised-data[:cache=1,refine=0,central=0,skip=0,unbiased=0]; "
         "or weights, to neighbours only: dpsgd, d2, gradient-tracking, dcd, ecd, "
         "choco[:delay=0], deepsqueeze, ad-psgd, sgp or noloco[:lr=0.7,momentum=0.3]")
      ->capture_default_str();
  app.add_option(
         "--ratio", o.ratio,
         "Part of the coordinates that uniform, dagc-r and dagc-a send in the mean over "
         "workers, and accordion at most; 0.1 by default")
      ->check(CLI::PositiveNumber);
  app.add_option("--graph", o.graph,
                 "Who the neighbours are: ring, torus, hypercube, star, complete, exponential, "
                 "one-peer-exponential, random-regular, erdos-renyi, random-pairs, or a file "
                 "of edges (`elastiquant graph --help`)");
  app.add_option("--gossip-step", o.gossip_step,
                 "How far weights follow what neighbours show, above 0 and up to 1; auto "
                 "searches for it if the codec loses anything or there is a delay")
      ->capture_default_str();
  app.add_option("--samples", o.samples,
                 "How images travel under quantised-data: jpeg:quality=1..100, or "
                 "pixels:bits=1..8,rounding=dither|nearest")
      ->capture_default_str();
  app.add_option(
         "--every", o.every,
         "Steps from one exchange to the next; by default 32, 30 of sparseloco, and 1 of "
         "delayed, of the algorithms with --ratio and of those with --graph but noloco")
      ->check(CLI::PositiveNumber);
  app.add_option("--every-later", o.every_later,
                 "Rounds of other lengths later, as 8@500,4@800: of 8 steps once 500 are made");
  app.add_option("--every-growth", o.every_growth,
                 "Rounds get longer as the learning rate falls, by this power of "
                 "peak / rate: 2 is the quadratic synchronisation rule; 0: they do not")
      ->capture_default_str();
  app.add_option("--fragments", o.fragments,
                 "Parts of the model that are exchanged by turns, each --every steps")
      ->capture_default_str();
  app.add_option("--optimizer", o.optimizer, "How the weights move: sgd or adamw")
      ->capture_default_str();
  flags.rate_given = app.add_option("--lr", o.learning_rate,
                                    "Learning rate for the mean gradient, after the warm-up; "
                                    "0.001 by default under adamw")
                         ->capture_default_str();
  app.add_option("--momentum", o.momentum, "Momentum of SGD")->capture_default_str();
  app.add_option("--beta1", o.beta1, "How much of its mean gradient AdamW keeps in a step")
      ->capture_default_str();
  app.add_option("--beta2", o.beta2,
                 "How much of its mean squared gradient AdamW keeps in a step")
      ->capture_default_str();
  app.add_option("--epsilon", o.epsilon,
                 "What AdamW adds to the root of its mean squared gradient")
      ->capture_default_str();
  flags.decay_given =
      app.add_option("--weight-decay", o.weight_decay,
                     "Weight decay; 0.01 by default under adamw, where it is decoupled")
          ->capture_default_str();
  app.add_option("--clip-norm", o.clip_norm,
                 "The most that the L2 norm of the mean gradient may be; 0: no limit")
      ->capture_default_str();
  app.add_flag("--decay-1d,!--no-decay-1d", o.decay_1d,
               "Apply weight decay to biases and norms too (the default)");
  app.add_flag("--nesterov", o.nesterov, "Use Nesterov momentum");
  app.add_option("--update", o.update,
                 "Update rule: sgd, or powersgd, which adds the gradient to the momentum as "
                 "PowerSGD's authors do")
      ->capture_default_str();
  app.add_option("--schedule", o.schedule,
                 "How the learning rate changes: constant, step, cosine or wsd (constant, then "
                 "down to 0)")
      ->capture_default_str();
  app.add_option("--warmup", o.warmup_steps, "Steps over which the learning rate rises")
      ->capture_default_str();
  app.add_option("--milestones", o.milestones,
                 "Where --schedule step lowers the learning rate, as fractions of the run")
      ->delimiter(',')
      ->default_str("0.5,0.75");
  app.add_option("--step-factor", o.step_factor,
                 "What --schedule step multiplies the learning rate by")
      ->capture_default_str();
  app.add_option("--decay-part", o.decay_part,
                 "The part of the run, at its end, in which --schedule wsd lowers the rate")
      ->capture_default_str();
}

void AddCommunication(CLI::App& app, TrainFlags& flags) {
  CommunicationOptions& o = flags.train;
  flags.workers_given =
      app.add_option("--workers", o.workers, "Processes to start on this machine")
          ->capture_default_str();
  flags.codec_given =
      app.add_option("--codec", o.codec,
                     "Codec of what is sent, as `elastiquant codecs` lists them; by default "
                     "that of --algorithm")
          ->capture_default_str();
  app.add_option("--bits-policy", o.bits_policy,
                 "How --codec dither gets its bits, by step, worker and layers: "
                 "noise[:kappa=0.1], adaquantfl, dadaquant, feddq, dq-sgd, aqg or fixed");
  app.add_option("--metric", o.metric,
                 "In which metric gradients are compressed: auto (that of the optimizer: under "
                 "adamw relative to its second moments) or plain")
      ->capture_default_str();
  app.add_option("--exact-steps", o.exact_steps,
                 "First steps that go uncompressed in a metric other than plain, while it gets "
                 "to know the gradients")
      ->capture_default_str();
  app.add_option("--exact", o.exact,
                 "Gradients that stay fp32: none, 1d (biases and norms), or patterns of names, "
                 "separated by commas")
      ->capture_default_str();
  app.add_option("--exchange", o.exchange,
                 "How the workers average: auto (by codec and number of workers), codec (as "
                 "the codec asks for), two-phase, all-gather, sparse-scatter or integer-sum")
      ->capture_default_str();
  app.add_option("--codec-down", o.codec_down,
                 "Codec under which means travel back in a two-phase exchange; by default that "
                 "of --codec");
  app.add_option("--adapt-every", o.adapt_every,
                 "Steps between the fits of alq's and amq's levels; 0: after 100 and 2000 "
                 "steps, then every 10000")
      ->capture_default_str();
  app.add_option("--bucket-kib", o.bucket_kib, "KiB of gradients that travel together")
      ->capture_default_str();
  app.add_option(
      "--link", o.link,
      "Emulate an access link of this RATE[,DELAY], such as 20mbit,10ms; or links by "
      "pairs of workers, in a file with lines 'A B RATE[,DELAY]' and '* RATE[,DELAY]'");
  app.add_option("--port", flags.port, "Port at which the workers meet; by default a free one");
  app.add_option("--timeout", o.timeout_seconds,
                 "Seconds of silence after which a worker counts as lost")
      ->capture_default_str();
  app.add_option(
         "--stall-timeout", o.stall_timeout_seconds,
         "Seconds to wait for a worker that is alive but makes no progress; 0: for ever")
      ->capture_default_str();
  app.add_option("--on-loss", o.on_loss,
                 "When a worker is lost: stop, or go-on without it and take it back when it "
                 "returns (not all algorithms: docs/training.md)")
      ->capture_default_str();
  app.add_option("--least-workers", o.least_workers,
                 "If fewer workers than this are left under go-on, the run is saved and ends")
      ->capture_default_str();
}

void AddRun(CLI::App& app, TrainFlags& flags) {
  RunOptions& o = flags.train;
  app.add_option("--out", o.out, "Folder for metrics, summary and checkpoints")
      ->capture_default_str();
  app.add_option("--threads", o.threads,
                 "Threads of libtorch per worker; by default the cores divided by the workers");
  app.add_option("--codec-threads", o.codec_threads, "Threads of the codec per worker")
      ->capture_default_str();
  app.add_option("--loader-threads", o.loader_threads, "Threads that load data per worker")
      ->capture_default_str();
  app.add_option("--checkpoint-every", o.checkpoint_every, "Steps between checkpoints; 0: none")
      ->capture_default_str();
  app.add_flag("--resume", o.resume, "Continue from the newest good checkpoint in --out");
  app.add_flag("--forget-memory", o.forget_memory,
               "Resume without what the codecs remember, such as the residual of |ef");
  app.add_flag("--overwrite", o.overwrite, "Replace the run in --out, checkpoints included");
  app.add_option("--eval-every", o.eval_every, "Epochs between evaluations; 0: only at the end")
      ->capture_default_str();
  app.add_option("--check-replicas", o.check_replicas,
                 "When to compare the workers' weights: epoch (after each, and at the end) or "
                 "every (step)")
      ->capture_default_str();
  app.add_option("--measure-every", o.measure_every,
                 "Steps between measurements of the codec's error; 0: never")
      ->capture_default_str();
  app.add_option(
         "--max-skipped", o.max_skipped,
         "Steps in a row that may be skipped for NaN or infinity before the run gives up")
      ->capture_default_str();
  app.add_option("--measure-variance", o.measure_variance,
                 "Steps between measurements of the mean gradient's variance at fixed weights, "
                 "by 20 more gradients each; 0: never")
      ->capture_default_str();
  app.add_option("--compute", o.compute,
                 "Compute nothing, but wait as long as a device would: a time (250ms), a speed "
                 "(40gflops) or a class (`elastiquant devices` lists them), for all workers or "
                 "A,B,... for each");
  app.add_option(
      "--replay", o.replay,
      "Under --compute: folder with the gradients that --dump-gradients has written");
  app.add_option("--dump-gradients", o.dump_gradients,
                 "Write worker 0's gradients, before compression, to OUT/gradients at these "
                 "steps: numbers or per cent of the run, such as 1,390,50%,100%");
  app.add_flag("--quiet", o.quiet, "Print a line per epoch instead of a progress bar");
  app.add_option("--inject", o.inject)->group("");
  app.add_option("--worker-rank", flags.worker_rank)->group("");
  app.add_option("--store-port", flags.store_port)->group("");
}

// What `add` adds is shown under a heading of its own in --help.
void InGroup(CLI::App& app, const std::string& heading, const auto& add) {
  const std::string before = app.option_defaults()->get_group();
  app.option_defaults()->group(heading);
  add();
  app.option_defaults()->group(before);
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
  InGroup(*app, "Data", [&] { AddData(*app, flags->train); });
  InGroup(*app, "Model and optimiser", [&] { AddUpdate(*app, *flags); });
  InGroup(*app, "Workers and what they send", [&] { AddCommunication(*app, *flags); });
  InGroup(*app, "The run", [&] { AddRun(*app, *flags); });
  return {app, [flags] { return RunTrain(WithDefaults(*flags)); }};
}

}  // namespace elastiquant::cli
