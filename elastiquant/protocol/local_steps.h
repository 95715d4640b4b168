// One worker of an algorithm whose workers train alone for some steps, and then average what
// came of it: local SGD and FedAvg (McMahan et al., 2017), DiLoCo (Douillard et al., 2023),
// Streaming DiLoCo (2025), eager updates (Kale, Douillard and Donchev, "Eager Updates For
// Overlapped Communication and Computation in DiLoCo", 2025) and SparseLoCo (Sarfi et al.,
// 2025). It has no thread, clock or socket: a driver tells it of local steps and of means, and
// does what it says.
//
// A round of a fragment is: the worker's pseudo-gradient, d = anchor - local, is averaged over
// the workers; the outer optimiser moves the anchor by the mean, as if it were a gradient,
//     m <- momentum m + mean;  anchor <- anchor - rate (mean + momentum m)   (Nesterov's)
// and the worker goes on from local <- mix local + (1 - mix) anchor.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/protocol/round_schedule.h"

namespace elastiquant {

struct OuterOptions {
  double learning_rate = 1;
  double momentum = 0;
};

struct LocalStepsOptions {
  RoundScheduleOptions schedule = {};
  OuterOptions outer = {};
  double mix = 0;  // of local values that is kept when a mean is applied, in [0, 1)
  // Whether a worker goes on at once with its own part of the round's mean and the others' of
  // the round before, so that a mean may take a whole round to come. Needs one fragment, a
  // delay of `every` and no mix.
  bool eager = false;
  double share = 1;  // this worker's part of the mean: 1 / N, or its weight over the sum
};

class LocalSteps {
 public:
  // `parameters` are the worker's local values, which it trains. They stay where they are, and
  // must outlive the machine; the anchor begins as a copy of them. `fragments` is by parameter.
  // Fails with InvalidArgument for options out of range.
  static Result<LocalSteps> Make(const LocalStepsOptions& options,
                                 std::vector<std::span<float>> parameters,
                                 std::vector<size_t> fragments);

  // Says what the driver must do after each local step, in this order: for kSend call Send, and
  // begin to average what it writes; for kApply wait for that mean and call Apply.
  const RoundSchedule& schedule() const { return schedule_; }

  // Says where a parameter's values are.
  using PlaceOf = std::function<std::span<float>(size_t parameter)>;
  // Writes the pseudo-gradient of each parameter of the fragment to its place.
  void Send(size_t fragment, const PlaceOf& place);
  // Writes what Send wrote last, for a group that was lost with it. No local step may have been
  // made since.
  void SendAgain(size_t fragment, const PlaceOf& place);
  // Takes up the mean. If a worker had no finite pseudo-gradient, `place` must be null: the
  // round's work is then lost, and the worker goes on from the anchor.
  void Apply(size_t fragment, const PlaceOf& place);

  // All workers have the same shared model: the anchor of what all have applied. ShowShared
  // puts it in the place of the local values, and ShowLocal these back.
  void ShowShared();
  void ShowLocal();
  // The local values and the anchor become the shared model as it lies in the parameters.
  // Momentum begins anew. For the start of a run, before LoadState.
  void StartFrom();

  // For workers that form a new group (round_course.h). SharedState returns the values that are
  // the same on all workers that have applied the same means: the anchor and its momentum. They
  // may be written to, with those of a worker that is further.
  std::vector<std::span<float>> SharedState();
  // Goes on from the shared model, into which another worker has put the mean of this round.
  void TakeUp(size_t fragment);
  // Begins anew at the shared model, with nothing of its own.
  void StartFromShared();
  void SetShare(double share) { share_ = share; }

  // Calls fn(name of a field, parameter, its values) for all that must be saved for the worker
  // to go on exactly, beside the means that are under way.
  void ForEachState(const std::function<void(std::string_view, size_t, std::span<float>)>& fn);

 private:
  // One model that the outer optimiser moves.
  struct Outer {
    std::vector<std::vector<float>> anchor, momentum;  // by parameter
  };

  LocalSteps(const LocalStepsOptions& options, const RoundSchedule& schedule,
             std::vector<std::span<float>> parameters, std::vector<size_t> fragments);
  void Step(Outer* outer, size_t parameter, std::span<const float> mean) const;
  void GoOnFrom(size_t parameter, double mix);

  const LocalStepsOptions options_;
  double share_;  // as options_ has it at first
  const RoundSchedule schedule_;
  const std::vector<std::span<float>> parameters_;
  std::vector<std::vector<size_t>> members_;  // by fragment
  // What means have moved, the same on all workers.
  Outer shared_;
  // If eager: what this worker's own parts have moved too, from which it goes on, its last
  // pseudo-gradient, and the last mean.
  Outer own_;
  std::vector<std::vector<float>> last_sent_, last_mean_;
  std::vector<std::vector<float>> hidden_;  // local values while the shared model is shown
};

}  // namespace elastiquant
