#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>

#include "elastiquant/net/communicator.h"

namespace elastiquant {
namespace {

constexpr char kAdvice[] = ": torchrun sets it; without torchrun use --workers N";

Result<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return NotFound(std::string("the environment variable ") + name + " is missing" + kAdvice);
  }
  return std::string(value);
}

Result<int> Number(const char* name, int lowest, int highest) {
  EQ_ASSIGN_OR_RETURN(const std::string text, Variable(name));
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < lowest || value > highest) {
    return InvalidArgument(std::string("the environment variable ") + name + " is \"" + text +
                           "\", not a number from " + std::to_string(lowest) + " to " +
                           std::to_string(highest));
  }
  return value;
}

std::string VariableOr(const char* name, std::string otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::move(otherwise) : std::string(value);
}

}  // namespace

Result<CommunicatorOptions> OptionsFromEnvironment() {
  CommunicatorOptions options;
  EQ_ASSIGN_OR_RETURN(options.world_size,
                      Number("WORLD_SIZE", 1, std::numeric_limits<int>::max()));
  EQ_ASSIGN_OR_RETURN(options.rank, Number("RANK", 0, options.world_size - 1));
  EQ_ASSIGN_OR_RETURN(options.store_host, Variable("MASTER_ADDR"));
  EQ_ASSIGN_OR_RETURN(const int port, Number("MASTER_PORT", 1, 65535));
  options.store_port = static_cast<uint16_t>(port);
  options.store_is_external = VariableOr("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  // torchrun starts all workers again on the same store when one has failed.
  options.job = VariableOr("TORCHELASTIC_RUN_ID", "") + "/" +
                VariableOr("TORCHELASTIC_RESTART_COUNT", "0");
  return options;
}

}  // namespace elastiquant
