// The pace of a device that is not there: forward and backward take as long as they would on
// it, and each gradient is there when it would be, whether it was computed here or recorded in
// another run. So many devices can be timed on few cores, while what they send, and how, is
// real.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/data/loader.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/models/model.h"
#include "elastiquant/train/device_class.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// How long a step's forward and backward take: a time, or a speed.
struct ComputeSpeed {
  double seconds = 0;
  double gflops = 0;                    // if seconds is 0
  const DeviceClass* device = nullptr;  // whose speed it is, if a class was named
};

// Parses --compute: for all workers, or for each of them, separated by commas, a time such as
// "250ms" or "1.5s", a speed such as "40gflops", or the name of a device class. Fails with
// InvalidArgument, which lists the classes.
Result<std::vector<ComputeSpeed>> ParseCompute(std::string_view text);
// Fails with InvalidArgument if a device's memory is too small for the weights of a model with
// so many parameters, and as much again for each of gradients and momentum. Activations and the
// messages of others, which it needs too, are not counted.
Status CheckMemory(const DeviceClass& device, size_t parameters);

class DevicePace {
 public:
  // Fails as ParseCompute and CheckMemory do, and with InvalidArgument if speeds are given for
  // another number of workers.
  static Result<std::unique_ptr<DevicePace>> Make(const TrainOptions& options, int rank,
                                                  int world_size,
                                                  std::span<const ParameterShape> shapes);

  // Begins the forward pass of a step. The batch tells only how large its samples are.
  void Begin(Model& model, const Batch& batch);
  // Returns when the device would have computed so many more values of the step's `all`.
  void AwaitFilled(size_t values, size_t all);
  // Returns when it would have ended. If this worker often takes longer than its device would,
  // a warning goes to stderr once: the run is then slower than the devices are.
  void End();

 private:
  using Clock = std::chrono::steady_clock;

  DevicePace(const ComputeSpeed& speed, int64_t batch, int rank)
      : speed_(speed), batch_(batch), rank_(rank) {}
  double SecondsOfStep(Model& model, const Batch& batch) const;
  void AwaitPart(double part) const;

  const ComputeSpeed speed_;
  const int64_t batch_;
  const int rank_;
  double seconds_ = 0;  // of a step, once it is known
  Clock::time_point begin_;
  size_t filled_ = 0;
  int64_t steps_ = 0, late_ = 0;
};

}  // namespace elastiquant
