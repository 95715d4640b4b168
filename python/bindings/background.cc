#include "python/bindings/background.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace elastiquant::python {
namespace {

struct Tasks {
  std::mutex mutex;
  std::condition_variable ended;
  int running = 0;
};

// Never destroyed: a task may end after static objects have.
Tasks& AllTasks() {
  static auto* const tasks = new Tasks;
  return *tasks;
}

void AwaitAll() {
  Tasks& tasks = AllTasks();
  std::unique_lock lock(tasks.mutex);
  tasks.ended.wait(lock, [&] { return tasks.running == 0; });
}

}  // namespace

void RunInBackground(std::function<void()> task) {
  {
    const std::lock_guard lock(AllTasks().mutex);
    ++AllTasks().running;
  }
  std::thread([task = std::move(task)]() mutable {
    task();
    task = nullptr;
    const std::lock_guard lock(AllTasks().mutex);
    --AllTasks().running;
    AllTasks().ended.notify_all();
  }).detach();
}

void BindBackground(pybind11::module_& module) {
  module.def("_await_background", &AwaitAll,
             pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace elastiquant::python
