// What may wait for other workers, and must not hold up this one: Python's garbage collector
// drops things at another moment in each process, and the worker that hosts a store stays until
// all have left.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>

namespace elastiquant::python {

// On a thread of its own; never with the GIL.
void RunInBackground(std::function<void()> task);

// Deletes in the background.
template <typename T>
struct BackgroundDelete {
  void operator()(T* object) const {
    RunInBackground([object] { delete object; });
  }
};
template <typename T>
using BackgroundPtr = std::unique_ptr<T, BackgroundDelete<T>>;

// Deletes at once, without the GIL: the object's threads may ask for it.
template <typename T>
struct DeleteWithoutGil {
  void operator()(T* object) const {
    const pybind11::gil_scoped_release released;
    delete object;
  }
};

// Adds _await_background(), for the interpreter's end.
void BindBackground(pybind11::module_& module);

}  // namespace elastiquant::python
