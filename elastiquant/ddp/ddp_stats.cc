#include "elastiquant/ddp/ddp_stats.h"

namespace elastiquant {

double SentByAllReduce(double bytes, int world_size) {
  return 2 * bytes * (world_size - 1) / world_size;
}

void StepCounter::CountEarly() {
  const std::lock_guard lock(mutex_);
  ++stats_.early;
}

void StepCounter::CountStep(const Size& size, const StepOutcome& outcome,
                            const ReducerStats& reducer) {
  const std::lock_guard lock(mutex_);
  ++stats_.steps;
  stats_.skipped += outcome.skipped;
  if (outcome.skipped) stats_.skip_reason = outcome.reason;
  stats_.reducer += reducer;
  CountUncompressed(size);
}

void StepCounter::CountExactStep(const Size& size, double wait_seconds) {
  const std::lock_guard lock(mutex_);
  ++stats_.steps;
  ++stats_.exact_steps;
  stats_.reducer.coordinates += size.values;
  stats_.reducer.wait_seconds += wait_seconds;
  const uint64_t sent = CountUncompressed(size);
  stats_.traffic.bytes_up += sent;
  stats_.traffic.bytes_down += sent;
}

// With the mutex locked: counts what a step sends without compression, and returns its bytes.
uint64_t StepCounter::CountUncompressed(const Size& size) {
  const auto sent_by_all_reduce = [&](uint64_t bytes) {
    return static_cast<uint64_t>(SentByAllReduce(static_cast<double>(bytes), size.world_size));
  };
  stats_.fp32_bytes_up += sent_by_all_reduce(sizeof(float) * size.values);
  const uint64_t sent = sent_by_all_reduce(size.bytes);
  stats_.uncompressed_bytes_up += sent;
  return sent;
}

DdpStats StepCounter::Since(const Traffic& sent) const {
  const std::lock_guard lock(mutex_);
  DdpStats stats = stats_;
  const Traffic ours = sent - at_reset_;
  stats.traffic.bytes_up += ours.bytes_up;
  stats.traffic.bytes_down += ours.bytes_down;
  stats.traffic.transmit_seconds = ours.transmit_seconds;
  return stats;
}

void StepCounter::Reset(const Traffic& sent) {
  const std::lock_guard lock(mutex_);
  stats_ = {};
  at_reset_ = sent;
}

}  // namespace elastiquant
