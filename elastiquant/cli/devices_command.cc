// `devices`: whose time `train --compute` can take.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "elastiquant/cli/command.h"
#include "elastiquant/train/device_class.h"

namespace elastiquant::cli {
namespace {

void PrintDevicesJson() {
  nlohmann::ordered_json devices;
  for (const DeviceClass& device : DeviceClasses()) {
    devices[std::string(device.name)] = {{"hardware", device.hardware},
                                         {"gflops", device.gflops},
                                         {"memory_gb", device.memory_gb},
                                         {"radio_watts", device.radio_watts},
                                         {"source", device.source}};
  }
  fmt::print("{}\n", devices.dump(2));
}

void PrintDevices() {
  fmt::print("{:<15} {:>8} {:>10} {:>8}\n", "name", "GFLOP/s", "memory GB", "radio W");
  for (const DeviceClass& device : DeviceClasses()) {
    fmt::print("{:<15} {:>8.1f} {:>10.0f} {:>8.1f}  {}\n{:45}{}\n", device.name, device.gflops,
               device.memory_gb, device.radio_watts, device.hardware, "", device.source);
  }
}

constexpr char kDevicesExample[] =
    "  elastiquant devices\n"
    "  elastiquant train --compute jetson-nano --replay runs/recorded/gradients --steps 5";

}  // namespace

Command MakeDevicesCommand(CLI::App& program) {
  auto json = std::make_shared<bool>(false);
  CLI::App* app =
      AddSubcommand(program, "devices",
                    "List the devices that train --compute can stand in for", kDevicesExample);
  app->add_flag("--json", *json, "Print a JSON object of names and what is known of each");
  return {app, [json] {
            *json ? PrintDevicesJson() : PrintDevices();
            return Status::Ok();
          }};
}

}  // namespace elastiquant::cli
