// A slow link between machines, as it is described on the command line.
#pragma once

#include <string_view>

#include "elastiquant/base/status.h"

namespace elastiquant {

// An access link of the given rate in each direction, and one-way delay. "20mbit,10ms".
struct LinkSpec {
  double bits_per_second = 0;
  double delay_seconds = 0;
};
// RATE is a number with kbit, mbit or gbit; DELAY a number with us, ms or s.
Result<LinkSpec> ParseLink(std::string_view text);

}  // namespace elastiquant
