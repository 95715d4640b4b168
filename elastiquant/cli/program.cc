#include "elastiquant/cli/program.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "elastiquant/base/standard_streams.h"
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

// Returns the word that stands where a command is to be, or "". CLI11 would only say that a
// command is missing.
std::string UnknownCommand(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  const std::vector<std::string> rest = app->remaining();
  if (rest.empty() || app->get_require_subcommand_min() == 0) return "";
  std::string valid;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    valid += (valid.empty() ? "" : ", ") + command->get_name();
  }
  return "'" + rest[0] + "' is no command; valid are: " + valid;
}

// CLI11 has a number for each way to get the command line wrong; to a script they are one.
int ExitOfParse(const CLI::App& program, const CLI::ParseError& error) {
  return program.exit(error) == 0 ? kExitDone : kExitUsage;
}

int ParseAndRun(int argc, char** argv) {
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
  for (const Command& command : commands) CheckNumbers(command.app);
  try {
    program.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    const std::string unknown = UnknownCommand(program);
    if (unknown.empty()) return ExitOfParse(program, error);
    std::fprintf(stderr, "elastiquant: %s\n", unknown.c_str());
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    return ExitOfParse(program, error);
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    return TellEnd(command.app->get_name(), command.run());
  }
  return kExitUsage;  // not reached: require_subcommand(1)
}

}  // namespace

int RunProgram(int argc, char** argv) {
  try {
    return ParseAndRun(argc, argv);
  } catch (const std::exception& error) {  // libtorch and the standard library throw
    std::fprintf(stderr, "elastiquant: %s\n", error.what());
    return kExitFailure;
  }
}

void LeaveProcess(int exit_code) {
  exit_code = ExitCodeOnceWritten(exit_code);
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace elastiquant::cli
