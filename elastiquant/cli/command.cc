#include "elastiquant/cli/command.h"

#include <cstdio>

namespace elastiquant::cli {

ExitCode ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return kExitDone;
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kUnsupported:
      return kExitUsage;
    case StatusCode::kUnavailable:
      return kExitPeerLost;
    case StatusCode::kCorruptData:
      return kExitCorrupt;
    case StatusCode::kNonFinite:
    case StatusCode::kOutOfRange:
      return kExitNonFinite;
    case StatusCode::kIo:
    case StatusCode::kBufferTooSmall:
    case StatusCode::kInternal:
      return kExitFailure;
  }
  return kExitFailure;
}

ExitCode TellEnd(const std::string& command, const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "elastiquant %s: %s\n", command.c_str(), status.ToString().c_str());
  }
  return ExitCodeOf(status);
}

CLI::Validator NotNegative() {
  return {[](std::string& text) -> std::string {
            return text.starts_with('-') ? "'" + text + "' must be a number from 0 on" : "";
          },
          "FROM 0"};
}

CLI::App* AddSubcommand(CLI::App& program, const std::string& name,
                        const std::string& description, const std::string& example) {
  CLI::App* app = program.add_subcommand(name, description);
  app->footer("Example:\n" + example);
  return app;
}

}  // namespace elastiquant::cli
