#include "elastiquant/train/fault.h"

#include <charconv>
#include <string>

namespace elastiquant {
namespace {

// The text up to `separator`, which is taken off `text`.
std::string_view TakeUntil(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return head;
}

Status ParseKind(std::string_view name, FaultKind* kind) {
  constexpr std::pair<std::string_view, FaultKind> kKinds[] = {{"nan", FaultKind::kNan},
                                                               {"exit", FaultKind::kExit},
                                                               {"kill", FaultKind::kKill},
                                                               {"stop", FaultKind::kStop},
                                                               {"drift", FaultKind::kDrift}};
  for (const auto& [known, value] : kKinds) {
    if (name != known) continue;
    *kind = value;
    return Status::Ok();
  }
  return InvalidArgument("unknown fault '" + std::string(name) +
                         "'; valid are: nan, exit, kill, stop, drift");
}

Status ParseField(std::string_view field, Fault* fault) {
  const std::string_view key = TakeUntil(field, '=');
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || stop != field.data() + field.size() || value < 0) {
    return InvalidArgument("fault: '" + std::string(key) + "' needs a number");
  }
  if (key == "step") {
    fault->step = value;
  } else if (key == "times") {
    fault->times = value;
  } else if (key == "rank") {
    fault->rank = static_cast<int>(value);
  } else {
    return InvalidArgument("fault: unknown key '" + std::string(key) +
                           "'; valid are: step, rank, times");
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<Fault>> ParseFaults(std::string_view text) {
  std::vector<Fault> faults;
  while (!text.empty()) {
    std::string_view one = TakeUntil(text, ';');
    Fault fault;
    EQ_RETURN_IF_ERROR(ParseKind(TakeUntil(one, '@'), &fault.kind));
    while (!one.empty()) EQ_RETURN_IF_ERROR(ParseField(TakeUntil(one, ','), &fault));
    faults.push_back(fault);
  }
  return faults;
}

}  // namespace elastiquant
