#include "elastiquant/train/schedule.h"

namespace elastiquant {
namespace {

// cos(pi * x) for x in [0, 1], to about 1e-15: a Taylor series around the nearer of 0 and 1/2.
double CosPi(double x) {
  constexpr double kPi = 3.14159265358979323846;
  if (x > 0.5) return -CosPi(1.0 - x);
  const double y = kPi * x;
  double term = 1.0;
  double sum = 1.0;
  for (int n = 2; n <= 24; n += 2) {
    term *= -y * y / (n * (n - 1));
    sum += term;
  }
  return sum;
}

}  // namespace

Result<ScheduleKind> ParseScheduleKind(std::string_view text) {
  if (text == "constant") return ScheduleKind::kConstant;
  if (text == "step") return ScheduleKind::kStep;
  if (text == "cosine") return ScheduleKind::kCosine;
  if (text == "wsd") return ScheduleKind::kWsd;
  return InvalidArgument("unknown schedule '" + std::string(text) +
                         "'; valid are: constant, step, cosine, wsd");
}

double LearningRate(const Schedule& schedule, int64_t step) {
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.kind == ScheduleKind::kStep) {
    double rate = schedule.peak;
    for (double milestone : schedule.milestones) {
      if (static_cast<double>(step) >= milestone * static_cast<double>(schedule.total_steps)) {
        rate *= schedule.factor;
      }
    }
    return rate;
  }
  if (schedule.kind == ScheduleKind::kCosine) {
    const auto done = static_cast<double>(step - schedule.warmup_steps);
    const auto span = static_cast<double>(schedule.total_steps - schedule.warmup_steps);
    if (done >= span) return 0.0;
    return schedule.peak * 0.5 * (1.0 + CosPi(done / span));
  }
  if (schedule.kind == ScheduleKind::kWsd) {
    const auto left = static_cast<double>(schedule.total_steps - step);
    const double span = schedule.decay_part * static_cast<double>(schedule.total_steps);
    return left >= span ? schedule.peak : schedule.peak * (left > 0 ? left / span : 0);
  }
  return schedule.peak;
}

}  // namespace elastiquant
