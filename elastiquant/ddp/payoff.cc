#include "elastiquant/ddp/payoff.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "elastiquant/base/median.h"

namespace elastiquant {
namespace {

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f s", seconds);
  return text;
}

}  // namespace

void Payoff::Enter(State state) {
  state_ = state;
  steps_ = 0;
  seconds_.clear();
}

void Payoff::Add(double seconds, double exact_seconds) {
  ++steps_;
  switch (state_) {
    case State::kOff:
      return;
    case State::kSettling:
      if (steps_ >= kSettlingSteps) Enter(State::kTiming);
      return;
    case State::kCompressed:
    case State::kExact:
      if (steps_ >= kChosenSteps) Enter(State::kTiming);
      return;
    case State::kTiming:
    case State::kTrying:
      // The first step of either way still has the other one's traces: pages to touch, say.
      if (steps_ > 1) seconds_.push_back(seconds);
      break;
  }
  if (state_ == State::kTrying && steps_ > 1 && seconds > kHopeless * compressed_) {
    seconds_.assign(1, seconds);
    return JudgeExact();
  }
  if (seconds_.size() < kTimedSteps) return;
  if (state_ == State::kTiming) {
    JudgeCompressed(exact_seconds);
  } else {
    JudgeExact();
  }
}

void Payoff::JudgeCompressed(double exact_seconds) {
  compressed_ = Median(seconds_);
  if (exact_seconds < kNotWorthATrial * compressed_) return Enter(State::kTrying);
  if (chosen_ == State::kExact) {
    notice_ = "the link has become slow enough for compression: sending compressed again";
  }
  Enter(chosen_ = State::kCompressed);
}

void Payoff::JudgeExact() {
  const double exact = Median(seconds_);
  const bool pays = compressed_ <= (1 - kMargin) * exact;
  if (pays && chosen_ == State::kExact) {
    notice_ = "a step takes " + Seconds(compressed_) + " compressed and " + Seconds(exact) +
              " uncompressed: sending compressed again";
  } else if (!pays && chosen_ != State::kExact) {
    notice_ =
        "compression does not pay on this link: a step takes " + Seconds(compressed_) +
        " compressed and " + Seconds(exact) +
        " uncompressed. The process group's own all-reduce has the gradients from here on "
        "(switch=False compresses all the same)";
  }
  Enter(chosen_ = pays ? State::kCompressed : State::kExact);
}

std::string Payoff::TakeNotice() { return std::exchange(notice_, {}); }

}  // namespace elastiquant
