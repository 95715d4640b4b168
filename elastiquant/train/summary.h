// Writes summary.json, which says what came of a run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/data/partition.h"
#include "elastiquant/runs/run_record.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// How the program was started.
struct RunInfo {
  std::string command_line;
  std::string version;   // of this program
  int workers_here = 1;  // workers on this machine, which share its cores
};

// What a summary tells besides options and totals.
struct RunFacts {
  int world_size = 1;
  int64_t coordinates = 0;  // of the model
  int64_t steps_per_epoch = 0;
  int64_t shared_steps = 0;  // of the run, if SharesSteps
  bool replicas_identical = true;
  uint64_t weights_hash = 0;
  std::string init;                  // text of LoadInitialWeights; empty without --init
  std::string edges;                 // text of DescribeEdges
  uint64_t rounds = 0;               // exchanges that were made
  std::vector<uint64_t> uploads;     // by worker: how often it sent values in them
  nlohmann::json policy = nullptr;   // Runner::Policy
  nlohmann::json samples = nullptr;  // Runner::Samples
  nlohmann::json network = nullptr;  // Runner::Network
  nlohmann::json losses = nlohmann::json::array();  // of workers, as docs/metrics.md has them
  const Shares* shares = nullptr;                   // null if no worker has a share of its own
};

// Writes options.out/summary.json atomically, and a line about it to stdout.
Status WriteSummary(const TrainOptions& options, const RunInfo& info, const RunFacts& facts,
                    const RunRecord& record);

}  // namespace elastiquant
