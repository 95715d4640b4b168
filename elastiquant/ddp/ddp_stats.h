// What a worker counts of its steps.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// What this worker has counted since the last reset.
struct DdpStats {
  uint64_t steps = 0;
  uint64_t skipped = 0;      // of them: some worker could not encode its gradient
  uint64_t exact_steps = 0;  // of them: sent as they are, as compression did not pay
  uint64_t early = 0;        // buckets of ours sent before DDP's was full
  ReducerStats reducer;
  Traffic traffic;
  uint64_t fp32_bytes_up = 0;          // what these steps would have sent as fp32
  uint64_t uncompressed_bytes_up = 0;  // the same in the gradients' own types
  std::string skip_reason;             // of the last step that was skipped
};

// Returns how many bytes a worker sends in an all-reduce of so many: they are scattered and
// gathered.
double SentByAllReduce(double bytes, int world_size);

// Counts steps. Thread-safe.
class StepCounter {
 public:
  // What a step averages: values, and their bytes in their own types.
  struct Size {
    uint64_t values = 0;
    uint64_t bytes = 0;
    int world_size = 1;
  };

  void CountEarly();
  void CountStep(const Size& size, const StepOutcome& outcome, const ReducerStats& reducer);
  // Counts a step that went as it is, whose last sum has taken `wait_seconds`.
  void CountExactStep(const Size& size, double wait_seconds);

  // Returns what was counted since the last Reset. `sent` is the communicator's traffic so far.
  DdpStats Since(const Traffic& sent) const;
  void Reset(const Traffic& sent);

 private:
  uint64_t CountUncompressed(const Size& size);

  mutable std::mutex mutex_;
  DdpStats stats_;
  Traffic at_reset_;
};

}  // namespace elastiquant
