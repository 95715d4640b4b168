#include "elastiquant/cli/train_flags.h"

#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/cli/command.h"

namespace elastiquant::cli {
namespace {

// CLI11's own names the largest double, in 309 digits, as the end of the range.
CLI::Validator AboveZero() {
  return {[](std::string& text) -> std::string {
            double value = 0;
            if (ParseNumber(text, &value) && value > 0) return "";
            return "'" + text + "' must be a number above 0";
          },
          "ABOVE 0"};
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

void AddModel(CLI::App& app, UpdateOptions& o) {
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
}

void AddAlgorithm(CLI::App& app, UpdateOptions& o) {
  app.add_option(
         "--algorithm", o.algorithm,
         "What workers send each other, as NAME[:KEY=VALUE,...].\n"
         "Gradients in every step: allreduce, onebit-adam[:freeze=STEPS], "
         "zeroone-adam[:growth=16,freeze=STEPS], demo[:decay=0.999,block=64,top=32,bits=32].\n"
         "A part of the gradients for each worker: uniform, "
         "dagc-r[:rule=published|monotone], dagc-a, accordion.\n"
         "What they have learnt alone: local-sgd[:delay=0,mix=0], "
         "diloco[:lr=0.7,momentum=0.9,delay=0,mix=0,eager=0], sparseloco[:lr=1].\n"
         "Gradients whose means come later: delayed[:delay=4].\n"
         "Gradients that have changed enough: lag-wk, lag-ps, laq, lasg, each with the keys "
         "history, xi and silence.\n"
         "The samples themselves: quantised-data[:KEY=VALUE,...], with the keys cache, "
         "refine, central, skip and unbiased.\n"
         "Weights, to neighbours only: dpsgd, d2, gradient-tracking, dcd, ecd, "
         "choco[:delay=0], deepsqueeze, ad-psgd, sgp, noloco[:lr=0.7,momentum=0.3]")
      ->capture_default_str();
  app.add_option(
         "--every", o.every,
         "Steps from one exchange to the next. The default is 32 for local-sgd, diloco and "
         "noloco, 30 for sparseloco, and 1 for all others that take it: delayed, those with "
         "--ratio and those with --graph")
      ->check(AboveZero());
  app.add_option("--every-later", o.every_later,
                 "Rounds of other lengths later, as 8@500,4@800: of 8 steps once 500 are made");
  app.add_option("--every-growth", o.every_growth,
                 "Rounds get longer as the learning rate falls, by this power of "
                 "peak / rate: 2 is the quadratic synchronisation rule; 0: they do not")
      ->capture_default_str();
  app.add_option("--fragments", o.fragments,
                 "Parts of the model under local-sgd, diloco and sparseloco. Each part is "
                 "exchanged once in --every steps, at another step than the others")
      ->capture_default_str();
  app.add_option(
         "--ratio", o.ratio,
         "Part of the coordinates that uniform, dagc-r and dagc-a send in the mean over "
         "workers, and accordion at most; 0.1 by default")
      ->check(AboveZero());
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
}

void AddOptimizer(CLI::App& app, TrainFlags& flags) {
  TrainOptions& o = flags.train;
  app.add_option("--optimizer", o.optimizer, "How the weights move: sgd or adamw")
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
  app.add_flag("--decay-1d,!--no-decay-1d", o.decay_1d,
               "Apply weight decay to biases and norms too (the default)");
  app.add_option("--clip-norm", o.clip_norm,
                 "The most that the L2 norm of the mean gradient may be; 0: no limit")
      ->capture_default_str();
  app.add_flag("--nesterov", o.nesterov, "Use Nesterov momentum");
  app.add_option("--update", o.update,
                 "Update rule: sgd, or powersgd, which adds the gradient to the momentum as "
                 "PowerSGD's authors do")
      ->capture_default_str();
}

void AddLearningRate(CLI::App& app, TrainFlags& flags) {
  TrainOptions& o = flags.train;
  flags.rate_given = app.add_option("--lr", o.learning_rate,
                                    "Learning rate for the mean gradient, after the warm-up; "
                                    "0.001 by default under adamw")
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

void AddCompression(CLI::App& app, TrainFlags& flags) {
  TrainOptions& o = flags.train;
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
  flags.exact_given =
      app.add_option("--exact", o.exact,
                     "Gradients that stay fp32: none, 1d (biases and norms), or patterns of "
                     "names, separated by commas; under sparseloco the default is none")
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
}

void AddWorkers(CLI::App& app, TrainFlags& flags) {
  TrainOptions& o = flags.train;
  flags.workers_given =
      app.add_option("--workers", o.workers, "Processes to start on this machine")
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
  app.add_option("--threads", o.threads,
                 "Threads of libtorch per worker; by default the cores divided by the workers");
  app.add_option("--codec-threads", o.codec_threads, "Threads of the codec per worker")
      ->capture_default_str();
  app.add_option("--loader-threads", o.loader_threads, "Threads that load data per worker")
      ->capture_default_str();
}

void AddRun(CLI::App& app, RunOptions& o) {
  app.add_option("--out", o.out, "Folder for metrics, summary and checkpoints")
      ->capture_default_str();
  app.add_option("--checkpoint-every", o.checkpoint_every, "Steps between checkpoints; 0: none")
      ->capture_default_str();
  app.add_flag("--resume", o.resume, "Continue from the newest good checkpoint in --out");
  app.add_flag("--forget-memory", o.forget_memory,
               "Resume without what the codecs remember, such as the residual of |ef");
  app.add_flag("--overwrite", o.overwrite, "Replace the run in --out, checkpoints included");
  app.add_option("--eval-every", o.eval_every, "Epochs between evaluations; 0: only at the end")
      ->capture_default_str();
  app.add_option(
         "--max-skipped", o.max_skipped,
         "Steps in a row that may be skipped for NaN or infinity before the run gives up")
      ->capture_default_str();
  app.add_flag("--quiet", o.quiet, "Print a line per epoch instead of a progress bar");
}

void AddMeasurements(CLI::App& app, RunOptions& o) {
  app.add_option("--check-replicas", o.check_replicas,
                 "When to compare the workers' weights, or without a centre what they have of "
                 "each other: epoch (after each, and at the end) or "
                 "every (step)")
      ->capture_default_str();
  app.add_option(
         "--measure-every", o.measure_every,
         "Steps between measurements of the codec's error; where workers meet in rounds, "
         "each round is measured. 0: never")
      ->capture_default_str();
  app.add_option("--measure-variance", o.measure_variance,
                 "Steps between measurements of the mean gradient's variance at fixed weights, "
                 "by 20 more gradients each; 0: never")
      ->capture_default_str();
  app.add_option("--dump-gradients", o.dump_gradients,
                 "Write worker 0's gradients, before compression, to OUT/gradients at these "
                 "steps: numbers or per cent of the run, such as 1,390,50%,100%");
  app.add_option("--compute", o.compute,
                 "Let a step take as long to compute as on a device: a time (250ms), a speed "
                 "(40gflops) or a class (`elastiquant devices` lists them), for all workers or "
                 "A,B,... for each");
  app.add_option(
      "--replay", o.replay,
      "Under --compute: compute nothing, and send the gradients in this folder, which "
      "--dump-gradients has written");
}

void AddHidden(CLI::App& app, TrainFlags& flags) {
  app.add_option("--inject", flags.train.inject)->group("");
}

// What `add` adds is shown under a heading of its own in --help.
void InGroup(CLI::App& app, const std::string& heading, const auto& add) {
  const std::string before = app.option_defaults()->get_group();
  app.option_defaults()->group(heading);
  add();
  app.option_defaults()->group(before);
}

}  // namespace

void AddTrainFlags(CLI::App& app, TrainFlags& flags) {
  InGroup(app, "Data", [&] { AddData(app, flags.train); });
  InGroup(app, "Model and steps", [&] { AddModel(app, flags.train); });
  InGroup(app, "Algorithm", [&] { AddAlgorithm(app, flags.train); });
  InGroup(app, "Optimiser", [&] { AddOptimizer(app, flags); });
  InGroup(app, "Learning rate", [&] { AddLearningRate(app, flags); });
  InGroup(app, "What is sent", [&] { AddCompression(app, flags); });
  InGroup(app, "Workers and links", [&] { AddWorkers(app, flags); });
  InGroup(app, "The run", [&] { AddRun(app, flags.train); });
  InGroup(app, "Measurements", [&] { AddMeasurements(app, flags.train); });
  AddHidden(app, flags);
}

TrainFlags WithDefaults(TrainFlags flags) {
  const std::string codec = UsualCodecOf(flags.train);
  if (flags.codec_given->count() == 0 && !codec.empty()) flags.train.codec = codec;
  if (flags.exact_given->count() == 0) flags.train.exact = UsualExactOf(flags.train);
  if (flags.train.optimizer != "adamw") return flags;
  if (flags.rate_given->count() == 0) flags.train.learning_rate = 1e-3;
  if (flags.decay_given->count() == 0) flags.train.weight_decay = 1e-2;
  return flags;
}

}  // namespace elastiquant::cli
