// What a run tells of itself: metrics.jsonl with an object for each step, and summary.json.
// docs/metrics.md defines every field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Where a step's wall time went, on one worker. compute and wait follow each other on the main
// thread; encode, decode and transmit happen beside them, so the parts may exceed the total.
struct StepSeconds {
  double compute = 0;   // of the main thread: data, forward, backward, optimiser
  double encode = 0;    // of codec threads
  double transmit = 0;  // the uplink was busy with our bytes
  double wait = 0;      // the main thread waited for gradients: exposed communication
  double decode = 0;    // of codec threads
  double total = 0;     // wall time

  StepSeconds& operator+=(const StepSeconds& other);
};

// What is told of one step.
struct StepRecord {
  int64_t step = 0;     // from 1: steps done, this one included
  int64_t epoch = 0;    // from 1: the epoch that it belongs to
  double loss = 0;      // mean over the global batch; NaN if skipped
  double accuracy = 0;  // per cent of the global batch
  double learning_rate = 0;
  bool skipped = false;
  StepSeconds seconds;
  uint64_t bytes_up = 0;  // of this worker
  uint64_t bytes_down = 0;
  int64_t images = 0;        // of all workers
  double squared_error = 0;  // of the frames measured in this step
  double squared_norm = 0;   // of what these frames encode
  // What the workers' policies decided for this step: "decisions" of docs/metrics.md.
  nlohmann::json decisions = nullptr;
  nlohmann::json variance = nullptr;  // where it was measured, as that page has it
};

// Sums over many steps.
struct StepTotals {
  int64_t steps = 0;
  int64_t skipped = 0;
  double loss = 0;      // sum over the steps not skipped
  double accuracy = 0;  // sum over the steps not skipped
  StepSeconds seconds;
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  int64_t images = 0;
  double squared_error = 0;
  double squared_norm = 0;

  void Add(const StepRecord& step);
  // Adds what a record says of messages and time, without counting a step.
  void AddCommunication(const StepRecord& step);
  nlohmann::json ToJson() const;  // has the means that a reader wants
};

// The bytes that one worker has sent and received.
struct WorkerBytes {
  uint64_t up = 0;
  uint64_t down = 0;
};

// The run's totals and a list of its epochs. They are a part of a checkpoint, so that the
// summary of a resumed run tells of the whole run.
class RunRecord {
 public:
  void AddStep(const StepRecord& step);
  // Adds what was sent, received and measured after the last step, and counts no step for it.
  void AddCommunication(const StepRecord& rest);
  // Enters the epoch that the steps since the last whole one make up. If it is not whole, it is
  // the run's last, but a longer run may go on with it and enter it again, which replaces the
  // entry. `test_accuracy` is in per cent, NaN if there was no evaluation; `more` has further
  // fields of the epoch.
  void EndEpoch(int64_t epoch, bool is_whole, double test_accuracy, double test_loss,
                const nlohmann::json& more = nlohmann::json::object());
  void AddOverhead(double evaluate_seconds, double checkpoint_seconds);

  // own_bytes returns this worker's bytes of the steps since the last SetMeanBytes.
  // SetMeanBytes says what the totals shall count of these steps instead: the mean over the
  // workers.
  const WorkerBytes& own_bytes() const { return own_; }
  void SetMeanBytes(const WorkerBytes& mean);

  const StepTotals& epoch() const { return epoch_; }
  nlohmann::json SaveState() const;
  void LoadState(const nlohmann::json& state);

  // Returns the fields of summary.json that come of the steps. `coordinates` are those of the
  // model. The bits per coordinate are those of one worker's uplink over the 2(N-1)/N copies of
  // the gradient that an all-reduce must send, so that fp32 has 32. `steps` are those of the
  // run, if workers make more of them or fewer; 0: as many as were added.
  nlohmann::json Summary(int64_t coordinates, int world_size, int64_t steps = 0) const;

 private:
  StepTotals run_;
  StepTotals epoch_;
  WorkerBytes own_;  // not saved: a checkpoint is written when the means are known
  nlohmann::json epochs_ = nlohmann::json::array();
  std::vector<double> step_seconds_;  // of this process's steps, for the median
  double evaluate_seconds_ = 0;
  double checkpoint_seconds_ = 0;
};

// Appends to metrics.jsonl, or to another file of JSON objects with a field "step".
class MetricsLog {
 public:
  // Opens the file. Keeps the lines of steps up to `steps_done`, and cuts off what a killed run
  // wrote beyond.
  static Result<MetricsLog> Open(const std::filesystem::path& file, int64_t steps_done);
  Status Write(const StepRecord& record);
  Status Write(const nlohmann::json& line);

 private:
  MetricsLog(std::ofstream stream, std::string name)
      : stream_(std::move(stream)), name_(std::move(name)) {}
  std::ofstream stream_;
  std::string name_;  // the file's
};

// Returns the machine's processor, cores and system, for the summary.
nlohmann::json DescribeMachine();

}  // namespace elastiquant
