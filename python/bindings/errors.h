// What the library says in Status, as Python's exceptions.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <string>
#include <utility>

#include "elastiquant/base/status.h"

namespace elastiquant::python {

// A Status on its way to Python, with or without the GIL. There it becomes
//   kInvalidArgument  ValueError
//   kNonFinite        elastiquant.NonFiniteError, a ValueError
//   kCorruptData      elastiquant.CorruptFrameError, a ValueError
//   kUnavailable      torch.distributed.DistBackendError, a RuntimeError
//   anything else     RuntimeError, which says what kind
class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

inline void ThrowIfError(Status status) {
  if (!status.ok()) throw StatusError(std::move(status));
}

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) throw StatusError(result.status());
  return std::move(result).value();
}

// Adds the exception classes, and what turns a StatusError into them.
void BindErrors(pybind11::module_& module);

}  // namespace elastiquant::python
