// A subcommand of the program `elastiquant`: one file NAME_command.cc each.
//
//   Command MakeNameCommand(CLI::App& program) {
//     auto options = std::make_shared<Options>();
//     CLI::App* app = AddSubcommand(program, "name", "What it does, in one line", kExample);
//     app->add_option("--steps", options->steps, "Steps to train")->capture_default_str();
//     return {app, [options] { return Run(*options); }};
//   }
//
// and one line in program.cc. A subcommand writes its result to stdout, everything said to a
// person to stderr, and returns its error instead of printing it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant::cli {

// What the program ends with; scripts rely on these numbers (docs/cli.md).
enum ExitCode : int {
  kExitDone = 0,
  kExitFailure = 1,    // it went wrong while running: disk full, out of memory, a bug
  kExitUsage = 2,      // an option, file or value given is wrong, missing or not supported here
  kExitPeerLost = 3,   // a worker died or did not answer in time
  kExitCorrupt = 4,    // a frame, file or checkpoint fails a check
  kExitNonFinite = 5,  // NaN, infinity or a norm beyond fp32 where a number was needed
};
ExitCode ExitCodeOf(const Status& status);
// Tells a person what has gone wrong in `command`, if anything has, and returns the exit code.
ExitCode TellEnd(const std::string& command, const Status& status);

struct Command {
  CLI::App* app;                // owned by the program
  std::function<Status()> run;  // called once, after parsing, if `app` was named
};

// Declares a subcommand whose --help ends with `example`, a command line or several.
CLI::App* AddSubcommand(CLI::App& program, const std::string& name,
                        const std::string& description, const std::string& example);

// Makes all options of a subcommand that are whole numbers take decimal numbers, and no others,
// and says of all numbers what is wrong with them. By itself CLI11 reads 010 as 8, -1 as one
// near 2^64 where numbers have no sign, and takes a number that is too large for the largest.
void CheckNumbers(CLI::App* app);

Command MakeAnalyzeCommand(CLI::App& program);
Command MakeBenchCommand(CLI::App& program);
Command MakeCodecsCommand(CLI::App& program);
Command MakeDataCommand(CLI::App& program);
Command MakeDecodeCommand(CLI::App& program);
Command MakeDevicesCommand(CLI::App& program);
Command MakeEncodeCommand(CLI::App& program);
Command MakeModelsCommand(CLI::App& program);
Command MakeGraphCommand(CLI::App& program);
Command MakeRatiosCommand(CLI::App& program);
Command MakeReportCommand(CLI::App& program);
Command MakeTestbedCommand(CLI::App& program);
Command MakeTheoryCommand(CLI::App& program);
Command MakeTrainCommand(CLI::App& program);

}  // namespace elastiquant::cli
