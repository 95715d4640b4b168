#include "elastiquant/protocol/round_course.h"

#include <algorithm>

namespace elastiquant {

void RoundCourse::Enter(int64_t step, bool is_last) {
  step_ = step;
  next_ = 0;
  actions_ = schedule_.After(step);
  ends_round_ = std::ranges::any_of(actions_, [](const FragmentAction& action) {
    return action.kind == FragmentAction::Kind::kApply && action.fragment == 0;
  });
  if (!is_last) return;
  const std::vector<FragmentAction> end = schedule_.AtEnd(step);
  actions_.insert(actions_.end(), end.begin(), end.end());
}

std::optional<RoundTask> RoundCourse::Next() const {
  if (next_ == actions_.size()) return {};
  const FragmentAction& action = actions_[next_];
  const auto task = [&](RoundTask::Kind kind) {
    return RoundTask{kind, action.fragment, action.round};
  };
  const auto send = [&] {
    const auto sent = sent_.find(action.fragment);
    const bool again = sent != sent_.end() && sent->second == action.round;
    return RoundTask{RoundTask::Kind::kSend, action.fragment, action.round, again};
  };
  if (action.kind == FragmentAction::Kind::kSend) {
    return IsPassed() ? task(RoundTask::Kind::kPass) : send();
  }
  if (IsPassed()) {
    return task(IsLost(action) ? RoundTask::Kind::kPass : RoundTask::Kind::kTakeUp);
  }
  if (under_way_.contains(action.fragment)) return task(RoundTask::Kind::kApply);
  return WasJustSent(action) ? send() : task(RoundTask::Kind::kPass);
}

void RoundCourse::Done() {
  const RoundTask task = *Next();
  const bool sends_now = actions_[next_].kind == FragmentAction::Kind::kSend;
  if (sends_now) sent_at_[task.fragment] = MilestoneOf(step_, next_);
  if (task.kind == RoundTask::Kind::kSend) {
    under_way_.insert(task.fragment);
    sent_[task.fragment] = task.round;
  }
  if (task.kind == RoundTask::Kind::kApply) under_way_.erase(task.fragment);
  // What is sent where a mean was due has its mean yet to come.
  const bool is_due = task.kind == RoundTask::Kind::kSend && !sends_now;
  if (!is_due) ++next_;
}

bool RoundCourse::WasJustSent(const FragmentAction& apply) const {
  const FragmentAction send{FragmentAction::Kind::kSend, apply.fragment, apply.round};
  const auto here = actions_.begin() + static_cast<std::ptrdiff_t>(next_);
  return std::find(actions_.begin(), here, send) != here;
}

bool RoundCourse::IsLost(const FragmentAction& apply) const {
  if (WasJustSent(apply)) return false;  // it was made again
  const auto sent = sent_at_.find(apply.fragment);
  const auto next_break = breaks_.upper_bound(sent == sent_at_.end() ? 0 : sent->second);
  return next_break != breaks_.end() && *next_break <= MilestoneOf(step_, next_);
}

uint64_t RoundCourse::reached() const { return std::max(furthest_, MilestoneOf(step_, next_)); }

void RoundCourse::Regroup(uint64_t furthest) {
  furthest_ = furthest;
  breaks_.insert(furthest);
  under_way_.clear();
}

void RoundCourse::StartAt(int64_t step) {
  step_ = step;
  actions_.clear();
  next_ = 0;
  ends_round_ = false;
}

}  // namespace elastiquant
