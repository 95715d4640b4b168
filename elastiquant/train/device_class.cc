#include "elastiquant/train/device_class.h"

#include <algorithm>
#include <array>

namespace elastiquant {
namespace {

// The sources name the boards and no speeds. A GPU's peak is its cores' two operations in each
// cycle, as the vendor's data sheet has it; that training attains 30 % of it is assumed, as is
// a watt for a radio that sends.
constexpr double kAttained = .3;
constexpr double kRadioWatts = 1;

constexpr std::array<DeviceClass, 4> kClasses = {{
    {"jetson-xavier", "NVIDIA Jetson AGX Xavier", kAttained * 2 * 512 * 1.377, 16, kRadioWatts,
     "data sheet: 512 cores at 1.377 GHz; 30 % of the peak is assumed"},
    {"jetson-nano", "NVIDIA Jetson Nano", kAttained * 2 * 128 * .9216, 4, kRadioWatts,
     "data sheet: 128 cores at .9216 GHz; 30 % of the peak is assumed"},
    {"raspberry-pi-4", "Raspberry Pi 4 B (its compute stick cannot train)", 13.5, 4,
     kRadioWatts,
     "HPL as publicly reported, 13.5 GFLOP/s; that training is as fast is assumed"},
    {"coral", "Google Coral Dev Board (its accelerator cannot train)", kAttained * 4 * 4 * 1.5,
     1, kRadioWatts,
     "data sheet: 4 Cortex-A53 at 1.5 GHz, 4 operations a cycle each; 30 % of the peak is "
     "assumed"},
}};

}  // namespace

std::span<const DeviceClass> DeviceClasses() { return kClasses; }

const DeviceClass* FindDeviceClass(std::string_view name) {
  const auto found = std::ranges::find(kClasses, name, &DeviceClass::name);
  return found == kClasses.end() ? nullptr : &*found;
}

}  // namespace elastiquant
