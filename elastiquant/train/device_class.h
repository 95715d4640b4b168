// Classes of devices by whose speed a run can be timed without having any (--compute).
#pragma once

#include <span>
#include <string_view>

namespace elastiquant {

struct DeviceClass {
  std::string_view name;
  std::string_view hardware;
  double gflops = 0;        // of fp32, that training attains, in 10^9 a second
  double memory_gb = 0;     // GiB
  double radio_watts = 0;   // while it sends
  std::string_view source;  // of these numbers, and which of them are assumed
};

// Returns those of ElastiQuant's testbed, fastest first.
std::span<const DeviceClass> DeviceClasses();
// Returns null if there is none of this name.
const DeviceClass* FindDeviceClass(std::string_view name);

}  // namespace elastiquant
