// Whether compression pays on this network: where it may not, steps are timed both ways.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace elastiquant {

// A schedule of trials. It says how to send the next step, and is told how long the last took:
// by all workers the same, so that all make the same choices.
class Payoff {
 public:
  // The first steps, in which DDP settles, are not timed.
  static constexpr int kSettlingSteps = 5;
  // Steps timed each way; what counts is the median.
  static constexpr int kTimedSteps = 8;
  // Steps until the choice is looked at again.
  static constexpr int kChosenSteps = 1000;
  // Compressed steps must be shorter by this to be chosen: at a draw the exact mean is better.
  static constexpr double kMargin = .02;
  // An uncompressed step so many times as long as a compressed one ends its trial.
  static constexpr double kHopeless = 2;
  // There is none if the gradient would keep the link busy for so many times a compressed step.
  // The link looks slower than it is to short messages, which wait for processors.
  static constexpr double kNotWorthATrial = 4;

  // If not enabled, all steps are to be compressed.
  explicit Payoff(bool enabled) : state_(enabled ? State::kSettling : State::kOff) {}

  // How to send the next step.
  bool exact() const { return state_ == State::kTrying || state_ == State::kExact; }
  // Whether Add needs what the last step took; otherwise anything does.
  bool timing() const { return state_ == State::kTiming || state_ == State::kTrying; }

  // A step is over. seconds: from its first gradients to the next one's, of the slowest worker.
  // exact_seconds: that the slowest link would be busy if the step were not compressed.
  void Add(double seconds, double exact_seconds);

  // What has been found since the last call, for the user; mostly nothing.
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
