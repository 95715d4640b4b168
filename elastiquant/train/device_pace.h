// Stands in for forward and backward on a device that is not there: waits as long as it would
// take, and fills in gradients that were recorded. So many devices can be timed on few cores
// without taking each other's time, while what they send, and how, is real.
#pragma once

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
#include "elastiquant/train/flat_gradients.h"
#include "elastiquant/train/gradient_replay.h"
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

class EmulatedCompute {
 public:
  // Fails as ParseCompute, CheckMemory and GradientReplay::Open do, and with InvalidArgument if
  // speeds are given for another number of workers.
  static Result<std::unique_ptr<EmulatedCompute>> Make(const TrainOptions& options, int rank,
                                                       int world_size,
                                                       std::span<const ParameterShape> shapes);

  // Fills the gradients, bucket after bucket in the order in which backward would, and each
  // when it would. The batch tells only how large its samples are.
  void Run(Model& model, const Batch& batch, int64_t step, FlatGradients* gradients);

 private:
  EmulatedCompute(const ComputeSpeed& speed, int64_t batch, int rank, int world_size)
      : speed_(speed), batch_(batch), rank_(rank), world_size_(world_size) {}
  double SecondsOfStep(Model& model, const Batch& batch);

  const ComputeSpeed speed_;
  const int64_t batch_;
  const int rank_, world_size_;
  std::unique_ptr<GradientReplay> replay_;
  double seconds_ = 0;  // of a step, once it is known
};

}  // namespace elastiquant
