// Finds out whether compression pays on this network: where it may not, steps are timed both
// ways.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace elastiquant {

// A schedule of trials, which DdpEngine follows. It says how to send the next step, and is told
// how long the last took. All workers tell it the same, so that all make the same choices.
class Payoff {
 public:
  // The first steps, in which DDP settles, are not timed.
  static constexpr int kSettlingSteps = 5;
  // How many steps are timed each way. The median of them counts.
  static constexpr int kTimedSteps = 8;
  // The number of steps after which the choice is looked at again.
  static constexpr int kChosenSteps = 1000;
  // The part by which compressed steps must be shorter to be chosen: at a draw the exact mean
  // is better.
  static constexpr double kMargin = .02;
  // An uncompressed step that takes more than this many times a compressed one ends its trial.
  static constexpr double kHopeless = 2;
  // There is no trial if the uncompressed gradient would keep the link busy for at least this
  // many times a compressed step. It is so much because the link looks slower than it is to
  // short messages, which wait for processors.
  static constexpr double kNotWorthATrial = 4;

  // If it is not enabled, all steps are to be compressed.
  explicit Payoff(bool enabled) : state_(enabled ? State::kSettling : State::kOff) {}

  // Whether to send the next step uncompressed.
  bool exact() const { return state_ == State::kTrying || state_ == State::kExact; }
  // Whether Add needs to know what the last step took. If not, any numbers will do.
  bool timing() const { return state_ == State::kTiming || state_ == State::kTrying; }

  // Notes that a step is over. `seconds` is the time from its first gradients to the next
  // step's, of the slowest worker. `exact_seconds` is the time for which the slowest link would
  // be busy if the step were not compressed.
  void Add(double seconds, double exact_seconds);

  // Returns what has been found since the last call, for the user. It is empty most of the
  // time.
  std::string TakeNotice();

 private:
  enum class State : uint8_t { kOff, kSettling, kTiming, kTrying, kCompressed, kExact };

  void Enter(State state);
  void JudgeCompressed(double exact_seconds);
  void JudgeExact();

  State state_;
  State chosen_ = State::kCompressed;
  int steps_ = 0;  // in this state
  std::vector<double> seconds_;
  double compressed_ = 0;  // median seconds of a step
  std::string notice_;
};

}  // namespace elastiquant
