#include "elastiquant/protocol/delayed_steps.h"

#include <algorithm>
#include <string>
#include <utility>

#include "elastiquant/protocol/values.h"

namespace elastiquant {

Result<DelayedSteps> DelayedSteps::Make(const DelayedOptions& options,
                                        std::vector<std::span<float>> parameters,
                                        Optimiser optimiser) {
  if (options.every < 1) {
    return InvalidArgument("gradients are sent every " + std::to_string(options.every) +
                           " steps; it must be at least 1");
  }
  if (options.delay < 0) {
    return InvalidArgument("a mean is applied " + std::to_string(options.delay) +
                           " steps after it was sent; it must be at least 0");
  }
  return DelayedSteps(options, std::move(parameters), std::move(optimiser));
}

DelayedSteps::DelayedSteps(const DelayedOptions& options,
                           std::vector<std::span<float>> parameters, Optimiser optimiser)
    : options_(options), parameters_(std::move(parameters)), optimiser_(std::move(optimiser)) {
  StartFrom();
}

void DelayedSteps::StartFrom() {
  shared_ = CopyOf(parameters_);
  sum_ = shared_;
  SetZero(&sum_);
  sum_is_empty_ = true;
  pending_.clear();
}

std::vector<DelayedAction> DelayedSteps::OnGradient(
    int64_t step, const std::vector<std::span<const float>>& gradient) {
  for (size_t p = 0; p < sum_.size(); ++p) {
    for (size_t i = 0; i < sum_[p].size(); ++i) sum_[p][i] += gradient[p][i];
  }
  sum_is_empty_ = false;
  using Kind = DelayedAction::Kind;
  std::vector<DelayedAction> actions;
  if (step % options_.every == 0) {
    actions.push_back({Kind::kSend, step / options_.every - 1});
  }
  const int64_t sent = step - options_.delay;
  if (sent >= options_.every && sent % options_.every == 0 && IsUnderWay(sent, step)) {
    const DelayedAction apply{Kind::kApply, sent / options_.every - 1};
    // What was sent just now is applied after it; what was sent before makes room first.
    actions.insert(options_.delay > 0 ? actions.begin() : actions.end(), apply);
  }
  return actions;
}

// Whether the round sent after step `sent` is still to be applied in `step`. It is not if OnEnd
// has had it applied, and the run was then made longer.
bool DelayedSteps::IsUnderWay(int64_t sent, int64_t step) const {
  if (sent == step) return true;
  const int64_t rounds_since = (step - 1) / options_.every - sent / options_.every + 1;
  return rounds_since <= static_cast<int64_t>(pending_.size());
}

std::vector<DelayedAction> DelayedSteps::OnEnd(int64_t step) const {
  using Kind = DelayedAction::Kind;
  std::vector<DelayedAction> actions;
  const int64_t sent = step / options_.every;  // rounds
  const auto under_way = static_cast<int64_t>(pending_.size());
  for (int64_t r = sent - under_way; r < sent; ++r) actions.push_back({Kind::kApply, r});
  if (sum_is_empty_) return actions;
  actions.push_back({Kind::kSend, sent});
  actions.push_back({Kind::kApply, sent});
  return actions;
}

void DelayedSteps::Put(const Values& values) {
  for (size_t p = 0; p < values.size(); ++p) {
    std::ranges::copy(values[p], parameters_[p].begin());
  }
}

const DelayedSteps::Values& DelayedSteps::Send() {
  pending_.push_back(sum_);
  sent_ = sum_;
  SetZero(&sum_);
  sum_is_empty_ = true;
  return sent_;
}

void DelayedSteps::Apply(const Values* mean) {
  pending_.pop_front();
  if (mean == nullptr) return;
  Put(shared_);
  optimiser_.step(*mean);
  shared_ = CopyOf(parameters_);
}

// Steps by the own gradients are made for a trial: the shared model and what the optimiser
// remembers of it stay as they are.
void DelayedSteps::Advance() {
  Put(shared_);
  if (pending_.empty() && sum_is_empty_) return;
  optimiser_.save();
  for (const Values& own : pending_) optimiser_.step(own);
  if (!sum_is_empty_) optimiser_.step(sum_);
  optimiser_.restore();
}

void DelayedSteps::ShowShared() {
  hidden_ = CopyOf(parameters_);
  Put(shared_);
}

void DelayedSteps::ShowLocal() { Put(std::exchange(hidden_, {})); }

void DelayedSteps::ForEachState(
    size_t rounds, const std::function<void(std::string_view, size_t, std::span<float>)>& fn) {
  pending_.resize(rounds, Values());
  const auto each = [&](std::string_view name, size_t first, Values& field) {
    for (size_t p = 0; p < field.size(); ++p) fn(name, first + p, field[p]);
  };
  each("shared", 0, shared_);
  each("sum", 0, sum_);
  for (size_t r = 0; r < rounds; ++r) {
    if (pending_[r].empty()) pending_[r] = shared_;
    each("own", r * shared_.size(), pending_[r]);
  }
  float is_empty = sum_is_empty_ ? 1 : 0;
  fn("sum-is-empty", 0, {&is_empty, 1});
  sum_is_empty_ = is_empty != 0;
}

}  // namespace elastiquant
