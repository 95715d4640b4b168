// When a worker that trains alone sends what came of it, and when it takes up the mean. A model
// is cut into fragments; each is sent after every `every` local steps, the fragments evenly
// spread over them, and applied `delay` local steps later (Douillard et al., "Streaming DiLoCo
// with overlapping communication", 2025, algorithm 2). One fragment and no delay is DiLoCo and
// local SGD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

struct RoundScheduleOptions {
  int64_t every = 32;    // local steps between two sends of a fragment, at least 1
  size_t fragments = 1;  // at most `every`
  int64_t delay = 0;     // local steps from sending to applying, at most `every`
  // The steps, counted from 1, after which the first rounds end, if these are longer. Those
  // after them have `every` steps, and none may have fewer.
  std::vector<int64_t> ends = {};
};

// Rounds that get longer as the learning rate falls: a round that begins at rate r has
// every (peak / r)^power steps, rounded, and the last one ends with the run. With a power of 2
// that is the quadratic synchronisation rule of Gu, Lyu, Arora and Zhang, "A Quadratic
// Synchronization Rule for Distributed Deep Learning", ICLR 2024. `rate_of` gives the rate of a
// step counted from 0. Returns RoundScheduleOptions::ends.
std::vector<int64_t> GrowingRounds(int64_t every, int power, double peak, int64_t steps,
                                   const std::function<double(int64_t step)>& rate_of);

// Rounds of other lengths from some steps on: a round that begins at local step `from`, counted
// from 0, or later has `every` steps. `phases` must be ascending by `from`. Returns
// RoundScheduleOptions::ends of rounds that begin before `steps`, of which the first have
// `every` steps.
struct RoundPhase {
  int64_t from = 0;
  int64_t every = 1;
};
std::vector<int64_t> PhasedRounds(int64_t every, std::span<const RoundPhase> phases,
                                  int64_t steps);

struct FragmentAction {
  enum class Kind : uint8_t { kSend, kApply };
  Kind kind = Kind::kSend;
  size_t fragment = 0;
  int64_t round = 0;  // of this fragment, from 0

  bool operator==(const FragmentAction&) const = default;
};

// A pure function of the step, so that all workers do the same, and a resumed one goes on
// without having saved anything.
class RoundSchedule {
 public:
  // Fails with InvalidArgument for options out of range.
  static Result<RoundSchedule> Make(const RoundScheduleOptions& options);

  // Returns what to do after local step `step`, counted from 1, in this order. A fragment that
  // is sent and applied after the same step is sent first; otherwise what has been under way
  // is applied before anything is sent.
  std::vector<FragmentAction> After(int64_t step) const;
  // Returns what more to do if `step` is the last one, so that no step of any worker is lost:
  // applies what is under way, then sends and applies what has changed since.
  std::vector<FragmentAction> AtEnd(int64_t step) const;

  // Returns whether the fragment is under way between steps `step` and `step` + 1.
  bool IsUnderWay(size_t fragment, int64_t step) const;
  // Returns the round, counted from 0, that local step `step`, counted from 1, is in.
  int64_t RoundOf(int64_t step) const;
  const RoundScheduleOptions& options() const { return options_; }

 private:
  explicit RoundSchedule(RoundScheduleOptions options) : options_(std::move(options)) {}

  int64_t EndOf(int64_t round) const;
  int64_t SendsUntil(size_t fragment, int64_t step) const;
  bool IsSentAfter(size_t fragment, int64_t step) const;

  RoundScheduleOptions options_;
};

}  // namespace elastiquant
