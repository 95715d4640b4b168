// ACCORDION (Agarwal et al., MLSys 2021) as DAGC's experiments have it: a worker sends more in
// rounds in which the norm of its update changes much.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant::policy {

struct AccordionOptions {
  double least = .01;     // ratio in quiet rounds, in (0, most]
  double most = .1;       // ratio in the others, at most 1
  double threshold = .5;  // relative change of the norm from which on a round is not quiet
};

// The rule of one worker. The original looks at each layer every tenth epoch; DAGC's code,
// which this follows, looks at the whole update in every round.
class Accordion {
 public:
  explicit Accordion(const AccordionOptions& options = {}) : options_(options) {}

  // Returns the ratio of a round in which the worker's update has this L2 norm, without what
  // error feedback remembers: `least` if | norm / previous - 1 | < threshold, else `most`,
  // which is also for the first round and after a norm of zero. A caller who must choose before
  // the update is known gives the norm of the round before.
  double Next(double norm);

  // Returns the previous norm, if there is one. LoadState fails with kCorruptData, and changes
  // nothing, if `state` is not what SaveState returns.
  std::vector<double> SaveState() const;
  Status LoadState(std::span<const double> state);

 private:
  AccordionOptions options_;
  std::optional<double> previous_;
};

}  // namespace elastiquant::policy
