// One worker that does not wait for the mean of its gradients: a mean is applied `delay` steps
// after it was sent, and until then the worker's own gradients stand for it. This is delayed
// averaging, as in "DaSGD" (Zhou et al., 2020) and in "Distributed Training Across the World"
// (Zhu et al., 2019), whose accumulated gradients sent every few steps are here, too. Under
// plain SGD the weights that a worker computes its gradients at are exactly those of the
// published update, w <- w - rate (g_own(t) + mean(t - delay) - g_own(t - delay)).
//
// It differs in two things. The shared model, which only means have moved, is kept apart, so
// that all workers have the same shared model to the bit at any time, and nothing can drift.
// And a worker's weights are those to which the optimiser would come from there by one step
// after the other with the own gradients that stand for means: an optimiser with momentum goes
// on moving by a gradient for as long as it would have, and workers whose gradients are all
// alike train exactly as if nothing were late.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

struct DelayedOptions {
  int64_t every = 1;  // steps whose gradients are added up and sent together, at least 1
  int64_t delay = 4;  // steps from sending to applying, at least 0
};

struct DelayedAction {
  enum class Kind : uint8_t { kSend, kApply };
  Kind kind = Kind::kSend;
  int64_t round = 0;  // from 0

  bool operator==(const DelayedAction&) const = default;
};

class DelayedSteps {
 public:
  using Values = std::vector<std::vector<float>>;  // by parameter

  // What the machine asks for: one that moves the parameters, where they lie, by a gradient.
  struct Optimiser {
    std::function<void(const Values& gradient)> step;
    // Saves what it remembers, or makes it again what was saved last.
    std::function<void()> save, restore;
  };

  // `parameters` stay where they are and must outlive the machine; what lies in them is where
  // the run begins. Fails with InvalidArgument for options out of range.
  static Result<DelayedSteps> Make(const DelayedOptions& options,
                                   std::vector<std::span<float>> parameters,
                                   Optimiser optimiser);

  // The most rounds that are under way at once.
  int64_t MostUnderWay() const { return options_.delay / options_.every + 1; }

  // Takes the gradient that was computed at the parameters as they are, in step `step`, counted
  // from 1. Returns what the driver must do, in this order: for kApply wait for the mean of
  // that round and call Apply, for kSend call Send and begin to average what it returns. Then
  // it must call Advance.
  std::vector<DelayedAction> OnGradient(int64_t step,
                                        const std::vector<std::span<const float>>& gradient);
  // Returns what more to do if `step` was the last. OnGradient may still go on after it; the
  // first regular round that it then sends may have the number of the round that is sent here.
  std::vector<DelayedAction> OnEnd(int64_t step) const;

  const Values& Send();
  // Applies the mean of the oldest round under way. If `mean` is null, there is none: the
  // round's gradients are lost.
  void Apply(const Values* mean);
  // Makes the parameters those at which the next gradient is to be computed.
  void Advance();

  // The shared model in the place of the parameters, and the other way round.
  void ShowShared();
  void ShowLocal();
  void StartFrom();  // the parameters as they are become the shared model

  // Calls fn(name of a field, index, its values) for all that must be saved beside the
  // optimiser's own and the means under way. `rounds` is how many there are of these: after
  // loading into a new machine, it must be that of the one saved.
  void ForEachState(size_t rounds,
                    const std::function<void(std::string_view, size_t, std::span<float>)>& fn);
  size_t rounds_under_way() const { return pending_.size(); }

 private:
  DelayedSteps(const DelayedOptions& options, std::vector<std::span<float>> parameters,
               Optimiser optimiser);
  bool IsUnderWay(int64_t sent, int64_t step) const;
  void Put(const Values& values);

  const DelayedOptions options_;
  const std::vector<std::span<float>> parameters_;
  const Optimiser optimiser_;
  Values shared_;
  Values sum_;                  // of own gradients that have not been sent
  bool sum_is_empty_ = true;    // whether there is none
  Values sent_;                 // what Send returned last
  std::deque<Values> pending_;  // by round under way: what this worker has sent for it
  Values hidden_;               // the parameters, while the shared model is shown
};

}  // namespace elastiquant
