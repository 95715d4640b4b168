#include "elastiquant/base/status.h"

namespace elastiquant {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kCorruptData:
      return "corrupt data";
    case StatusCode::kNonFinite:
      return "non-finite value";
    case StatusCode::kOutOfRange:
      return "out of range";
    case StatusCode::kBufferTooSmall:
      return "buffer too small";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kIo:
      return "input/output error";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown status";
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(StatusCodeName(code_)) + ": " + message_;
}

}  // namespace elastiquant
