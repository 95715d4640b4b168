// What may wait for other workers, and must not hold up this one: Python's garbage collector
// drops things at another moment in each process, and the worker that hosts a store stays until
// all have left.
#pragma once

#include <pybind11/pybind11.h>

#include <unistd.h>

#include <functional>
#include <memory>

namespace elastiquant::python {

// On a thread of its own; never with the GIL.
void RunInBackground(std::function<void()> task);

// The process in which an object was made. One that is forked from it has the object's memory,
// but not its threads, for which the destructor would wait: there the object is never deleted.
class OwnProcess {
 public:
  bool is_this() const { return getpid() == made_in_; }

 private:
  pid_t made_in_ = getpid();
};

// Deletes in the background.
template <typename T>
struct BackgroundDelete {
  void operator()(T* object) const {
    if (process.is_this()) RunInBackground([object] { delete object; });
  }
  OwnProcess process = {};
};
template <typename T>
using BackgroundPtr = std::unique_ptr<T, BackgroundDelete<T>>;

// Deletes at once, without the GIL: the object's threads may ask for it.
template <typename T>
struct DeleteWithoutGil {
  void operator()(T* object) const {
    if (!process.is_this()) return;
    const pybind11::gil_scoped_release released;
    delete object;
  }
  OwnProcess process = {};
};

// Adds _await_background(), for the interpreter's end.
void BindBackground(pybind11::module_& module);

}  // namespace elastiquant::python
