#include "elastiquant/train/fault.h"

#include <string>

#include "elastiquant/base/number.h"

namespace elastiquant {
namespace {

// The text up to `separator`, which is taken off `text`.
std::string_view TakeUntil(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return head;
}

constexpr std::pair<std::string_view, FaultKind> kKinds[] = {
    {"nan", FaultKind::kNan},   {"throw", FaultKind::kThrow}, {"quit", FaultKind::kQuit},
    {"exit", FaultKind::kExit}, {"kill", FaultKind::kKill},   {"stop", FaultKind::kStop},
    {"hang", FaultKind::kHang}, {"drift", FaultKind::kDrift}};
constexpr std::pair<std::string_view, FaultMoment> kMoments[] = {
    {"step", FaultMoment::kStep},
    {"backward", FaultMoment::kBackward},
    {"evaluation", FaultMoment::kEvaluation},
    {"checkpoint", FaultMoment::kCheckpoint},
    {"end", FaultMoment::kEnd}};

template <typename T, size_t N>
Status ParseName(std::string_view what, std::string_view name,
                 const std::pair<std::string_view, T> (&valid)[N], T* value) {
  std::string names;
  for (const auto& [known, meaning] : valid) {
    if (name == known) {
      *value = meaning;
      return Status::Ok();
    }
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  return InvalidArgument("unknown " + std::string(what) + " '" + std::string(name) +
                         "'; valid are: " + names);
}

Status ParseField(std::string_view field, Fault* fault) {
  const std::string_view key = TakeUntil(field, '=');
  if (key == "at") return ParseName("moment", field, kMoments, &fault->moment);
  int64_t value = 0;
  if (!ParseNumber(field, &value) || value < 0) {
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
                           "'; valid are: step, rank, times, at");
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<Fault>> ParseFaults(std::string_view text) {
  std::vector<Fault> faults;
  while (!text.empty()) {
    std::string_view one = TakeUntil(text, ';');
    Fault fault;
    EQ_RETURN_IF_ERROR(ParseName("fault", TakeUntil(one, '@'), kKinds, &fault.kind));
    while (!one.empty()) EQ_RETURN_IF_ERROR(ParseField(TakeUntil(one, ','), &fault));
    faults.push_back(fault);
  }
  return faults;
}

}  // namespace elastiquant
