// Schedules of the learning rate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

enum class ScheduleKind {
  kConstant,
  kStep,
  kCosine,
  kWsd,  // warm-up, stable, decay: constant, and then down to 0 in a straight line
};
// Parses "constant", "step", "cosine" or "wsd".
Result<ScheduleKind> ParseScheduleKind(std::string_view text);

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 0.1;         // the rate after warm-up
  int64_t total_steps = 1;   // steps of the whole run
  int64_t warmup_steps = 0;  // the rate rises linearly to `peak` over these (Goyal et al. 2017)
  std::vector<double> milestones = {0.5, 0.75};  // kStep: fractions of the run, rising
  double factor = 0.1;                           // kStep: what each milestone multiplies by
  double decay_part = 0.2;  // kWsd: the part of the run, at its end, in which the rate falls
};

// Returns the rate of step `step`, counted from 0. It is made by +, -, * and / alone, so that
// workers on different machines, whose libm may differ, take the same rate to the last bit.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace elastiquant
