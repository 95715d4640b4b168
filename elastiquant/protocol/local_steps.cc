#include "elastiquant/protocol/local_steps.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "elastiquant/kernels/norms.h"
#include "elastiquant/protocol/values.h"

namespace elastiquant {
namespace {

Status CheckLocalSteps(const LocalStepsOptions& o) {
  if (!(o.outer.learning_rate > 0) || !std::isfinite(o.outer.learning_rate)) {
    return InvalidArgument("the outer learning rate must be above 0");
  }
  if (!(o.outer.momentum >= 0 && o.outer.momentum < 1)) {
    return InvalidArgument("the outer momentum must be in [0, 1)");
  }
  if (!(o.mix >= 0 && o.mix < 1)) {
    return InvalidArgument("the part of local values that is kept must be in [0, 1)");
  }
  if (!(o.share > 0 && o.share <= 1)) {
    return InvalidArgument("a worker's share of the mean must be in (0, 1]");
  }
  if (!o.eager) return {};
  if (o.schedule.fragments != 1 || o.schedule.delay != o.schedule.every || o.mix != 0) {
    return InvalidArgument(
        "eager updates have one fragment, whose mean may take a whole round, and no mix");
  }
  return {};
}

}  // namespace

Result<LocalSteps> LocalSteps::Make(const LocalStepsOptions& options,
                                    std::vector<std::span<float>> parameters,
                                    std::vector<size_t> fragments) {
  EQ_RETURN_IF_ERROR(CheckLocalSteps(options));
  EQ_ASSIGN_OR_RETURN(const RoundSchedule& schedule, RoundSchedule::Make(options.schedule));
  if (fragments.size() != parameters.size() || std::ranges::any_of(fragments, [&](size_t f) {
        return f >= options.schedule.fragments;
      })) {
    return InvalidArgument("each parameter must belong to one of the " +
                           std::to_string(options.schedule.fragments) + " fragments");
  }
  return LocalSteps(options, schedule, std::move(parameters), std::move(fragments));
}

LocalSteps::LocalSteps(const LocalStepsOptions& options, const RoundSchedule& schedule,
                       std::vector<std::span<float>> parameters, std::vector<size_t> fragments)
    : options_(options),
      share_(options.share),
      schedule_(schedule),
      parameters_(std::move(parameters)),
      members_(options.schedule.fragments) {
  for (size_t p = 0; p < fragments.size(); ++p) members_[fragments[p]].push_back(p);
  StartFrom();
}

void LocalSteps::StartFrom() {
  shared_ = {CopyOf(parameters_), {}};
  if (options_.outer.momentum > 0) shared_.momentum = ZerosLike(parameters_);
  if (!options_.eager) return;
  own_ = shared_;
  last_sent_ = last_mean_ = ZerosLike(parameters_);
}

void LocalSteps::Send(size_t fragment, const PlaceOf& place) {
  const Outer& from = options_.eager ? own_ : shared_;
  for (const size_t p : members_[fragment]) {
    const std::span<float> out = place(p);
    const std::vector<float>& anchor = from.anchor[p];
    for (size_t i = 0; i < out.size(); ++i) out[i] = anchor[i] - parameters_[p][i];
    if (!options_.eager) continue;
    // The others are told by what is sent; here it would spoil the anchor for good.
    const std::vector<float> before = std::exchange(last_sent_[p], {out.begin(), out.end()});
    if (!AllFinite(out)) std::ranges::fill(last_sent_[p], 0.0f);
    const auto share = static_cast<float>(share_);
    std::vector<float> update(out.size());
    for (size_t i = 0; i < out.size(); ++i) {
      update[i] = share * (last_sent_[p][i] - before[i]) + last_mean_[p][i];
    }
    std::ranges::fill(last_mean_[p], 0.0f);
    Step(&own_, p, update);
    std::ranges::copy(own_.anchor[p], parameters_[p].begin());
  }
}

void LocalSteps::SendAgain(size_t fragment, const PlaceOf& place) {
  if (!options_.eager) return Send(fragment, place);
  // The worker has gone on from its own part, which the local values do not show any more.
  for (const size_t p : members_[fragment]) {
    std::ranges::copy(last_sent_[p], place(p).begin());
  }
}

void LocalSteps::Apply(size_t fragment, const PlaceOf& place) {
  for (const size_t p : members_[fragment]) {
    if (place) Step(&shared_, p, place(p));
    if (options_.eager) {
      // It counts from the next round on, when it takes the place of this worker's own part.
      if (place) std::ranges::copy(place(p), last_mean_[p].begin());
      continue;
    }
    GoOnFrom(p, place ? options_.mix : 0);
  }
}

void LocalSteps::Step(Outer* outer, size_t parameter, std::span<const float> mean) const {
  const auto rate = static_cast<float>(options_.outer.learning_rate);
  const auto factor = static_cast<float>(options_.outer.momentum);
  std::vector<float>& anchor = outer->anchor[parameter];
  if (factor == 0) {
    for (size_t i = 0; i < anchor.size(); ++i) anchor[i] -= rate * mean[i];
    return;
  }
  std::vector<float>& momentum = outer->momentum[parameter];
  for (size_t i = 0; i < anchor.size(); ++i) {
    momentum[i] = factor * momentum[i] + mean[i];
    anchor[i] -= rate * (mean[i] + factor * momentum[i]);
  }
}

void LocalSteps::GoOnFrom(size_t parameter, double mix) {
  const std::vector<float>& anchor = shared_.anchor[parameter];
  const std::span<float> local = parameters_[parameter];
  const auto keep = static_cast<float>(mix);
  if (keep == 0) {
    std::ranges::copy(anchor, local.begin());
    return;
  }
  for (size_t i = 0; i < local.size(); ++i) {
    local[i] = keep * local[i] + (1 - keep) * anchor[i];
  }
}

std::vector<std::span<float>> LocalSteps::SharedState() {
  std::vector<std::span<float>> state(shared_.anchor.begin(), shared_.anchor.end());
  state.insert(state.end(), shared_.momentum.begin(), shared_.momentum.end());
  return state;
}

void LocalSteps::TakeUp(size_t fragment) {
  for (const size_t p : members_[fragment]) {
    if (!options_.eager) {
      GoOnFrom(p, options_.mix);
      continue;
    }
    // What was learnt since the last send is all that the shared model does not have.
    for (size_t i = 0; i < parameters_[p].size(); ++i) {
      parameters_[p][i] += shared_.anchor[p][i] - own_.anchor[p][i];
    }
    own_.anchor[p] = shared_.anchor[p];
    if (!own_.momentum.empty()) own_.momentum[p] = shared_.momentum[p];
    std::ranges::fill(last_sent_[p], 0.0f);
    std::ranges::fill(last_mean_[p], 0.0f);
  }
}

void LocalSteps::StartFromShared() {
  for (size_t p = 0; p < parameters_.size(); ++p) GoOnFrom(p, 0);
  if (!options_.eager) return;
  own_ = shared_;
  last_sent_ = last_mean_ = ZerosLike(parameters_);
}

void LocalSteps::ShowShared() {
  hidden_ = CopyOf(parameters_);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::ranges::copy(shared_.anchor[p], parameters_[p].begin());
  }
}

void LocalSteps::ShowLocal() {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::ranges::copy(hidden_[p], parameters_[p].begin());
  }
  hidden_.clear();
}

void LocalSteps::ForEachState(
    const std::function<void(std::string_view, size_t, std::span<float>)>& fn) {
  const auto each = [&](std::string_view name, std::vector<std::vector<float>>& field) {
    for (size_t p = 0; p < field.size(); ++p) fn(name, p, field[p]);
  };
  each("anchor", shared_.anchor);
  each("momentum", shared_.momentum);
  each("own-anchor", own_.anchor);
  each("own-momentum", own_.momentum);
  each("last-sent", last_sent_);
  each("last-mean", last_mean_);
}

}  // namespace elastiquant
