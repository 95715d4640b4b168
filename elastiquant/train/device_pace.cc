#include "elastiquant/train/device_pace.h"

#include <fmt/format.h>

#include <cmath>
#include <thread>

#include "elastiquant/base/link_spec.h"
#include "elastiquant/base/number.h"
#include "elastiquant/base/split.h"
#include "elastiquant/base/standard_streams.h"
#include "elastiquant/models/flops.h"

namespace elastiquant {
namespace {

// Of a step's operations; backward has about twice those of forward.
constexpr double kForward = 1. / 3;
// A step is late if it takes more than kLate times as long as on the device. A warning is
// printed if half of the first kStepsToTell steps were.
constexpr double kLate = 1.1;
constexpr int64_t kStepsToTell = 50;

Result<ComputeSpeed> ParseOne(std::string_view word) {
  if (const DeviceClass* device = FindDeviceClass(word)) {
    return ComputeSpeed{.gflops = device->gflops, .device = device};
  }
  if (const auto seconds = ParseDelay(word); seconds && *seconds > 0) {
    return ComputeSpeed{.seconds = *seconds};
  }
  constexpr std::string_view kUnit = "gflops";
  double gflops = 0;
  if (word.ends_with(kUnit) &&
      ParseNumber(word.substr(0, word.size() - kUnit.size()), &gflops) && gflops > 0 &&
      std::isfinite(gflops)) {
    return ComputeSpeed{.gflops = gflops};
  }
  std::string names;
  for (const DeviceClass& device : DeviceClasses()) {
    names += (names.empty() ? "" : ", ") + std::string(device.name);
  }
  return InvalidArgument("--compute: '" + std::string(word) +
                         "' is no time such as 250ms, no " +
                         "speed such as 40gflops, and none of these devices: " + names);
}

}  // namespace

Result<std::vector<ComputeSpeed>> ParseCompute(std::string_view text) {
  std::vector<ComputeSpeed> speeds;
  for (const std::string_view word : SplitAt(text, ',')) {
    EQ_ASSIGN_OR_RETURN(const ComputeSpeed speed, ParseOne(word));
    speeds.push_back(speed);
  }
  return speeds;
}

Status CheckMemory(const DeviceClass& device, size_t parameters) {
  constexpr double kGib = 1 << 30;
  const double needed = 3 * sizeof(float) * static_cast<double>(parameters) / kGib;
  if (needed <= device.memory_gb) return {};
  return InvalidArgument(fmt::format(
      "--compute: {} has {:g} GiB of memory, and {} parameters with their gradients and "
      "momentum take {:.1f}: name a larger device, or its speed ({:.3g}gflops) to time it all "
      "the same",
      device.name, device.memory_gb, parameters, needed, device.gflops));
}

Result<std::unique_ptr<DevicePace>> DevicePace::Make(const TrainOptions& options, int rank,
                                                     int world_size,
                                                     std::span<const ParameterShape> shapes) {
  EQ_ASSIGN_OR_RETURN(const std::vector<ComputeSpeed> speeds, ParseCompute(options.compute));
  if (speeds.size() != 1 && speeds.size() != static_cast<size_t>(world_size)) {
    return InvalidArgument("--compute has " + std::to_string(speeds.size()) +
                           " devices, and there are " + std::to_string(world_size) +
                           " workers: give one for all, or one for each");
  }
  const ComputeSpeed speed = speeds[speeds.size() == 1 ? 0 : static_cast<size_t>(rank)];
  if (speed.device != nullptr) {
    size_t parameters = 0;
    for (const ParameterShape& shape : shapes) parameters += shape.elements;
    EQ_RETURN_IF_ERROR(CheckMemory(*speed.device, parameters));
  }
  return std::unique_ptr<DevicePace>(new DevicePace(speed, options.batch, rank));
}

double DevicePace::SecondsOfStep(Model& model, const Batch& batch) const {
  if (speed_.seconds > 0) return speed_.seconds;
  const double flops = ForwardFlops(model, batch.inputs.narrow(0, 0, 1)) / kForward;
  return flops * static_cast<double>(batch_) / (speed_.gflops * 1e9);
}

void DevicePace::Begin(Model& model, const Batch& batch) {
  if (seconds_ == 0) seconds_ = SecondsOfStep(model, batch);
  begin_ = Clock::now();
  filled_ = 0;
}

void DevicePace::AwaitPart(double part) const {
  const std::chrono::duration<double> due(seconds_ * part);
  std::this_thread::sleep_until(begin_ + std::chrono::duration_cast<Clock::duration>(due));
}

void DevicePace::AwaitFilled(size_t values, size_t all) {
  filled_ += values;
  const double part = static_cast<double>(filled_) / static_cast<double>(all);
  AwaitPart(kForward + (1 - kForward) * part);
}

void DevicePace::End() {
  AwaitPart(1);
  const std::chrono::duration<double> took = Clock::now() - begin_;
  ++steps_;
  if (took.count() > kLate * seconds_) ++late_;
  if (steps_ != kStepsToTell || late_ * 2 < steps_) return;
  Warn(fmt::format(
      "worker {} needs {:.3g} s here for a step that its device would make in "
      "{:.3g}: take fewer workers, a smaller batch or slower devices, or the run is "
      "slower than they are",
      rank_, took.count(), seconds_));
}

}  // namespace elastiquant
