// Errors as values. Every function that can fail on bad input returns a Status or a Result.
#pragma once

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace elastiquant {

// The same numbers appear in the C header elastiquant.h; never renumber them.
enum class StatusCode : int {
  kOk = 0,
  kInvalidArgument = 1,  // the caller gave a wrong value: the message says which are right
  kCorruptData = 2,      // a frame or file fails a check: the message names the check
  kNonFinite = 3,        // NaN or infinity in a gradient: never encoded
  kOutOfRange = 4,       // finite, but not representable (a bucket norm beyond fp32, say)
  kBufferTooSmall = 5,   // the output does not fit: the message gives the size needed
  kUnsupported = 6,      // valid, but not in this build or on this machine
  kNotFound = 7,         // a file, key or name does not exist
  kIo = 8,               // the operating system refused: the message has its words
  kUnavailable = 9,      // a peer was lost or did not answer in time
  kInternal = 10,        // a bug in this library
};

// Returns "invalid argument", "corrupt data" and so on, or "unknown status" for any other
// number.
std::string_view StatusCodeName(StatusCode code);

// Says whether a call succeeded and, if not, why.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // Returns "ok", or the name and the message, such as "corrupt data: the checksum does not
  // match".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status CorruptData(std::string m) { return {StatusCode::kCorruptData, std::move(m)}; }
inline Status NonFinite(std::string m) { return {StatusCode::kNonFinite, std::move(m)}; }
inline Status OutOfRange(std::string m) { return {StatusCode::kOutOfRange, std::move(m)}; }
inline Status BufferTooSmall(std::string m) {
  return {StatusCode::kBufferTooSmall, std::move(m)};
}
inline Status Unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status IoError(std::string m) { return {StatusCode::kIo, std::move(m)}; }
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

// Holds a value, or the Status that says why there is none. value(), * and -> may only be used
// if ok().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}                                        // NOLINT
  Result(Status status) : state_(std::move(status)) { assert(!this->status().ok()); }  // NOLINT

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace elastiquant

#define EQ_CONCAT_INNER_(a, b) a##b
#define EQ_CONCAT_(a, b) EQ_CONCAT_INNER_(a, b)

// Returns the error from the calling function if `expr` gave one.
#define EQ_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                  \
    if (::elastiquant::Status eq_status_ = (expr); !eq_status_.ok()) return eq_status_; \
  } while (false)

// Assigns the value of a Result to `lhs`, or returns its error from the calling function:
//   EQ_ASSIGN_OR_RETURN(auto frame, ParseFrame(bytes));
#define EQ_ASSIGN_OR_RETURN(lhs, expr) \
  EQ_ASSIGN_OR_RETURN_IMPL_(EQ_CONCAT_(eq_result_, __LINE__), lhs, expr)
#define EQ_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                              \
  if (!result.ok()) return result.status();          \
  lhs = std::move(result).value()
