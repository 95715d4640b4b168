#include "elastiquant/cli/command.h"

#include <cstdint>
#include <cstdio>

#include "elastiquant/base/number.h"

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

namespace {

// Takes away leading zeros, which scripts write so that names of runs sort.
std::string WithoutZeros(const std::string& text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  const size_t digit = text.find_first_not_of('0', sign);
  if (digit == std::string::npos) return text.size() > sign ? "0" : text;
  return text.substr(0, sign) + text.substr(digit);
}

// CLI11's own words, "Could not convert", do not say into what.
const CLI::Validator kReal(
    [](std::string& text) -> std::string {
      double number = 0;
      if (CLI::detail::lexical_cast(text, number)) return "";
      return "'" + text + "' must be a number";
    },
    "");

template <typename Number>
CLI::Validator Decimal(const char* what) {
  return {[what](std::string& text) -> std::string {
            const std::string digits = WithoutZeros(text);
            Number number = 0;
            if (!ParseNumber(digits, &number)) return "'" + text + "' must be " + what;
            text = digits;
            return "";
          },
          ""};
}

}  // namespace

void CheckNumbers(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) option->transform(Decimal<int64_t>("a whole number"));
    if (type.starts_with("UINT")) {
      option->transform(Decimal<uint64_t>("a whole number from 0 on, below 2^64"));
    }
    if (type.starts_with("FLOAT")) option->check(kReal);
  }
}

CLI::App* AddSubcommand(CLI::App& program, const std::string& name,
                        const std::string& description, const std::string& example) {
  CLI::App* app = program.add_subcommand(name, description);
  app->footer("Example:\n" + example);
  return app;
}

}  // namespace elastiquant::cli
