// The program `elastiquant`: parses the command line and runs the subcommand that it names.
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "elastiquant/cli/command.h"
#include "elastiquant/cli/help_formatter.h"

namespace elastiquant::cli {
namespace {

std::vector<Command> MakeCommands(CLI::App& program) {
  std::vector<Command> commands;
#ifdef ELASTIQUANT_WITH_TRAIN
  commands.push_back(MakeTrainCommand(program));
  commands.push_back(MakeModelsCommand(program));
  commands.push_back(MakeDataCommand(program));
  commands.push_back(MakeDevicesCommand(program));
  commands.push_back(MakeTestbedCommand(program));
#endif
  commands.push_back(MakeReportCommand(program));
  commands.push_back(MakeCodecsCommand(program));
  commands.push_back(MakeAnalyzeCommand(program));
  commands.push_back(MakeTheoryCommand(program));
  commands.push_back(MakeGraphCommand(program));
  commands.push_back(MakeRatiosCommand(program));
  commands.push_back(MakeBenchCommand(program));
  commands.push_back(MakeEncodeCommand(program));
  commands.push_back(MakeDecodeCommand(program));
  return commands;
}

// CLI11 has a number for each way to get the command line wrong; to a script they are one.
int ExitOfParse(const CLI::App& program, const CLI::ParseError& error) {
  return program.exit(error) == 0 ? kExitDone : kExitUsage;
}

int Run(int argc, char** argv) {
  CLI::App program("Trains neural networks over slow networks by compressing gradients.");
  program.name("elastiquant");
  program.formatter(std::make_shared<HelpFormatter>());  // of the commands, too
  program.set_version_flag("--version", ELASTIQUANT_VERSION);
  program.require_subcommand(1);
  program.footer(
      "Each command explains itself: elastiquant COMMAND --help\n"
      "Exit codes: 0 done, 1 failed while running, 2 bad usage or input,\n"
      "3 a worker was lost, 4 corrupt data, 5 NaN or infinity.");
  const std::vector<Command> commands = MakeCommands(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ExitOfParse(program, error);
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const Status status = command.run();
    if (!status.ok()) {
      std::fprintf(stderr, "elastiquant %s: %s\n", command.app->get_name().c_str(),
                   status.ToString().c_str());
    }
    return ExitCodeOf(status);
  }
  return kExitUsage;  // not reached: require_subcommand(1)
}

}  // namespace
}  // namespace elastiquant::cli

int main(int argc, char** argv) {
  try {
    return elastiquant::cli::Run(argc, argv);
  } catch (const std::exception& error) {  // libtorch and the standard library throw
    std::fprintf(stderr, "elastiquant: %s\n", error.what());
    return elastiquant::cli::kExitFailure;
  }
}
