// Shows a person which worker has which part of the data.
#pragma once

#include <cstdint>
#include <string>

#include "elastiquant/data/partition.h"

namespace elastiquant {

// Returns a table with a line for each worker: how many samples it has, how many per cent of
// all that were dealt, and how many of each class; of more than 10 classes, how many it has.
// The line above says under which partition, and whether some of the `samples` of the training
// set lie on no worker. There is no newline at the end.
std::string ShareTable(const Shares& shares, const std::string& spec, int64_t samples);

}  // namespace elastiquant
