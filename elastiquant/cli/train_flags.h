// The options of `elastiquant train`, as its command line has them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "elastiquant/train/train_options.h"

namespace elastiquant::cli {

struct TrainFlags {
  TrainOptions train;
  CLI::Option *workers_given = nullptr, *rate_given = nullptr, *decay_given = nullptr;
  CLI::Option *codec_given = nullptr, *exact_given = nullptr;
  uint16_t port = 0;
};

// Adds all options, in the groups in which --help shows them. Parsing writes to `flags`.
void AddTrainFlags(CLI::App& app, TrainFlags& flags);

// Returns the flags with what is usual for their algorithm and optimiser, where nothing else
// was given.
TrainFlags WithDefaults(TrainFlags flags);

}  // namespace elastiquant::cli
