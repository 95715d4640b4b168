// The options of a training run.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/exchange/exchange_choice.h"
#include "elastiquant/layers/metric.h"
#include "elastiquant/protocol/round_schedule.h"
#include "elastiquant/train/fault.h"
#include "elastiquant/train/schedule.h"

namespace elastiquant {

inline constexpr int kTestedWorkers = 32;
inline constexpr int kMostWorkers = 1024;

struct DataOptions {
  std::string data = "generated";
  bool augment = true;
  int64_t generated_train = 10000;  // images of the generated set
  int64_t generated_test = 2000;
  uint64_t data_seed = 0;         // of the generated set
  int64_t image_size = 0;         // of JPEG folders; 0: the format's default
  std::string partition = "iid";  // which worker has which samples, as ParsePartition takes it
};

struct UpdateOptions {
  std::string model = "resnet20";
  std::string precision = "fp32";  // or "bf16", in which forward and backward multiply
  std::string init;   // file that the weights begin with; empty: made from the seed
  int64_t steps = 0;  // 0: `epochs` says how long
  int64_t epochs = 10;
  int64_t batch = 32;  // images of a worker in a step
  uint64_t seed = 1;

  std::string algorithm = "allreduce";  // as ParseAlgorithm takes it
  // Of algorithms whose workers train alone: steps from one exchange of a part of the model to
  // its next, and the parts. 0 steps: EveryOf the algorithm.
  int64_t every = 0;
  int64_t fragments = 1;
  // Rounds of other lengths from some steps on, as "4@700,2@900" (ParsePhases).
  std::string every_later;
  // The power of peak / rate by which rounds grow (GrowingRounds), 0 to 3.
  int64_t every_growth = 0;
  // Who averages with whom, as Graph::Parse takes it, and how far weights follow what is shown
  // (GossipStepOf). For algorithms without a centre; an empty graph is the usual one (GraphOf).
  std::string graph;
  std::string gossip_step = "auto";
  // Of algorithms by which workers send unequal parts: the part of the coordinates that is sent
  // in the mean. 0: RatioOf has the default.
  double ratio = 0;
  std::string samples = "jpeg:quality=50";  // how samples travel, as MakeSampleCodec takes it
  std::string optimizer = "sgd";            // or "adamw"
  double learning_rate = 0.1;
  double momentum = 0.9;  // of SGD
  double beta1 = 0.9;     // of AdamW: how much of the mean gradient is kept in a step
  double beta2 = 0.999;   // the same of the mean squared gradient
  double epsilon = 1e-8;  // of AdamW: added to the root of the latter
  double weight_decay = 1e-4;
  bool decay_1d = true;  // whether biases and norms have weight decay too
  bool nesterov = false;
  double clip_norm = 0;  // the most that the mean gradient's L2 norm may be; 0: no limit
  // How the weights move under SGD. "sgd": m = momentum m + g; x -= lr m. "powersgd", as that
  // is published: x -= lr (g + m).
  std::string update = "sgd";
  std::string schedule = "cosine";
  int64_t warmup_steps = 0;
  std::vector<double> milestones = {0.5, 0.75};
  double step_factor = 0.1;
  double decay_part = 0.2;  // of the run, at whose end schedule "wsd" lowers the rate
};

struct CommunicationOptions {
  int workers = 1;
  std::string codec = "elastic:bits=4";
  std::string bits_policy;   // how `codec` gets its bits, as policy::ParseBitPolicy takes it
  std::string exact = "1d";  // BucketPlanOptions::exact
  std::string exchange = "auto";  // as exchange/exchange_choice.h takes it
  std::string metric = "auto";    // in which gradients are compressed; or "plain"
  // First steps that go uncompressed in a metric, which must get to know the gradients.
  int64_t exact_steps = Metric::kFirstSteps;
  std::string codec_down;               // for means on their way back; empty: `codec`
  int64_t bucket_kib = 256;             // of fp32 gradient
  int64_t adapt_every = 0;              // steps; 0: LevelAdapter's schedule
  std::string link;                     // "20mbit,10ms"; empty: as fast as it goes
  double timeout_seconds = 20;          // a worker silent for longer is lost
  double stall_timeout_seconds = 1800;  // one that holds up others so long is lost; 0: never
  std::string on_loss = "stop";         // or "go-on" without a lost worker, which may come back
  int least_workers = 1;                // with fewer a run does not go on
};

struct RunOptions {
  std::string out = "run";
  int threads = 0;  // libtorch's, of a worker; 0: the cores divided among workers
  int codec_threads = 1;
  int loader_threads = 1;

  int64_t checkpoint_every = 0;  // steps; 0: none
  bool resume = false;
  bool forget_memory = false;  // whether to resume without what the codecs remembered
  bool overwrite = false;
  int64_t eval_every = 1;                // epochs; 0: at the end only
  std::string check_replicas = "epoch";  // or "every" (step)
  int64_t measure_every = 50;            // steps between measurements of the error; 0: never
  int64_t measure_variance = 0;          // the same of the mean gradient's variance
  int64_t max_skipped = 10;              // steps skipped in a row after which the run gives up
  bool quiet = false;
  std::string dump_gradients;  // as ParseDumpSteps takes it; empty: none
  std::string inject;          // as ParseFaults takes it
  // The device whose time forward and backward take (ParseCompute), or empty: as fast as it
  // goes. With it there may be a folder with gradients that are sent in place of computed ones.
  std::string compute, replay;
};

// All options. `train --help` shows them in smaller groups.
struct TrainOptions : DataOptions, UpdateOptions, CommunicationOptions, RunOptions {};

// Checks every value that can be checked without the data. The error names the option, the
// value and the valid range.
Status ValidateOptions(const TrainOptions& options);

// Returns "adam" if gradients are compressed relative to the optimiser's second moments
// (layers/metric.h), or "plain", as they also are where the codec loses nothing.
std::string MetricOf(const TrainOptions& options);

// Whether every step moves the weights by the mean gradient. False if there is no such
// algorithm.
bool IsAllReduce(const TrainOptions& options);

// Whether workers take their steps from those of all, as fast as each can (StepPool): in
// AD-PSGD, whose workers do not wait for each other. Not if lost workers may be taken back, for
// which all have to meet after the same steps.
bool SharesSteps(const TrainOptions& options);

// Whether each worker must have a share of the data of its own, though they are dealt evenly.
bool NeedsShares(const TrainOptions& options);

// Returns the part of the coordinates that workers send in the mean.
double RatioOf(const TrainOptions& options);

// Returns the codec that goes with the options, if --codec does not say otherwise; it is empty
// if none does. The options need not be valid.
std::string UsualCodecOf(const TrainOptions& options);

// Returns what stays uncompressed, if --exact does not say otherwise: nothing under sparseloco,
// as published. The options need not be valid.
std::string UsualExactOf(const TrainOptions& options);

// Whether workers send samples and nothing else, so that --codec and --exact do nothing. The
// options need not be valid.
bool SendsSamplesOnly(const TrainOptions& options);

// Chooses how the means of gradients under `codec` come about, by --exchange and --codec-down.
Result<ExchangeChoice> ExchangeOf(const TrainOptions& options,
                                  std::shared_ptr<const Codec> codec, int world_size);

// Returns the graph of a gossip algorithm.
std::string GraphOf(const TrainOptions& options);
// Returns the step, or nothing if it is to be searched for. Fails with kInvalidArgument if
// options.gossip_step is neither.
Result<std::optional<double>> GossipStepOf(const TrainOptions& options);

// Whether workers train alone between two exchanges: an algorithm that is_local(), or one by
// which workers send unequal parts, if they do so every few steps.
bool TrainsAlone(const TrainOptions& options);

// Returns the steps that workers train alone for, and those after which a mean is applied, if
// the algorithm TrainsAlone.
int64_t RoundOf(const TrainOptions& options);
int64_t DelayOf(const TrainOptions& options);
// Parses "H@STEP,...": rounds have H steps once STEP steps are made. Fails with
// InvalidArgument unless steps rise.
Result<std::vector<RoundPhase>> ParsePhases(std::string_view text);
// The shortest round of an algorithm that TrainsAlone, and RoundScheduleOptions::ends.
int64_t ShortestRoundOf(const TrainOptions& options);
std::vector<int64_t> RoundEnds(const TrainOptions& options, int64_t total_steps);

Schedule MakeSchedule(const TrainOptions& options, int64_t total_steps);

}  // namespace elastiquant
