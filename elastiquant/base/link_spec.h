// A slow link between machines, as it is described on the command line.
#pragma once

#include <optional>
#include <string_view>

#include "elastiquant/base/status.h"

namespace elastiquant {

// An access link with a rate, which is the same in each direction, and a one-way delay.
struct LinkSpec {
  double bits_per_second = 0;
  double delay_seconds = 0;
};
// Parses "RATE" or "RATE,DELAY", such as "20mbit,10ms". RATE is a number with kbit, mbit or
// gbit that makes at least one bit a second; DELAY is a number with us, ms or s that makes at
// most an hour, and 0 if it is left out. Fails with kInvalidArgument for any other text.
Result<LinkSpec> ParseLink(std::string_view text);
// Parses DELAY alone. Returns seconds, from 0 to 3600, or nothing for any other text.
std::optional<double> ParseDelay(std::string_view text);

}  // namespace elastiquant
