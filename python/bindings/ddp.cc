#include "python/bindings/ddp.h"

#include <pybind11/stl.h>

#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>
#include <vector>

#include "elastiquant/ddp/ddp_engine.h"
#include "elastiquant/ddp/ddp_hook.h"
#include "elastiquant/layers/metric.h"
#include "python/bindings/background.h"
#include "python/bindings/communicator.h"
#include "python/bindings/errors.h"

namespace py = pybind11;

namespace elastiquant::python {
namespace {

// A function that goes with the GIL held, whoever drops it last.
std::shared_ptr<py::function> Shared(py::function function) {
  return {new py::function(std::move(function)), [](py::function* f) {
            const py::gil_scoped_acquire gil;
            delete f;
          }};
}

// Calls a Python function from any thread.
std::function<void(const std::string&)> FromAnyThread(py::function function) {
  return [shared = Shared(std::move(function))](const std::string& text) {
    const py::gil_scoped_acquire gil;
    try {
      (*shared)(text);
    } catch (py::error_already_set& e) {
      e.discard_as_unraisable("elastiquant's notice");
    }
  };
}

// The all-reduce of a process group, or null for None. No GIL is needed.
AllReduce SumOf(const py::object& process_group) {
  if (process_group.is_none()) return nullptr;
  return [group = process_group.cast<c10::intrusive_ptr<c10d::ProcessGroup>>()](
             const at::Tensor& values) {
    std::vector<at::Tensor> tensors{values};
    return group->allreduce(tensors)->getFuture();
  };
}

// Of tests, whose function does not raise.
std::function<double(bool)> SecondsFrom(const std::optional<py::function>& function) {
  if (!function) return nullptr;
  return [shared = Shared(*function)](bool exact) {
    const py::gil_scoped_acquire gil;
    return (*shared)(exact).cast<double>();
  };
}

// An engine that ends without the GIL, whoever drops it last: its threads may ask for the GIL.
std::shared_ptr<DdpEngine> EndingWithoutGil(std::shared_ptr<DdpEngine> engine) {
  DdpEngine* raw = engine.get();
  return {raw, [held = std::move(engine), process = OwnProcess()](DdpEngine*) mutable {
            if (!process.is_this()) {
              (void)new std::shared_ptr(std::move(held));  // so that it is never deleted
              return;
            }
            if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
              const py::gil_scoped_release released;
              held.reset();
            }
            held.reset();
          }};
}

std::shared_ptr<DdpEngine> MakeEngine(
    const py::object& meeting, const std::vector<ParameterTuple>& parameters,
    const std::vector<std::string>& orders, size_t bucket_elements, uint64_t seed, int threads,
    uint64_t measure_every, const py::object& all_reduce_by, bool shares_link,
    const std::string& exchange, const std::map<std::string, std::string>& down,
    bool has_uncompressed, bool needs_settings, bool may_discard, py::function on_notice,
    const std::optional<py::function>& step_seconds) {
  CommunicatorOptions communicator = OptionsOf(meeting);
  DdpOptions options{.bucket_elements = bucket_elements,
                     .seed = seed,
                     .threads = threads,
                     .measure_every = measure_every,
                     .all_reduce = SumOf(all_reduce_by),
                     .shares_link = shares_link,
                     .exchange = exchange,
                     .down = down,
                     .has_uncompressed = has_uncompressed,
                     .needs_settings = needs_settings,
                     .may_discard = may_discard,
                     .step_seconds = SecondsFrom(step_seconds),
                     .on_notice = FromAnyThread(std::move(on_notice)),
                     .end = [](std::unique_ptr<Communicator> comm) {
                       BackgroundDelete<Communicator>()(comm.release());
                     }};
  std::vector<DdpParameter> known = ParametersOf(parameters);
  for (size_t p = 0; p < known.size(); ++p) known[p].order = orders.at(p);
  const py::gil_scoped_release released;
  return EndingWithoutGil(ValueOrThrow(
      DdpEngine::Create(std::move(communicator), std::move(known), std::move(options))));
}

std::vector<std::string> LayersOf(DdpEngine& engine) {
  std::vector<std::string> lines;
  for (const nlohmann::json& line : engine.Layers()) lines.push_back(line.dump());
  return lines;
}

// The future of a tensor, as one of a Python object, which DDP wants from hooks in Python.
Future OfPython(const Future& future) {
  auto of_python =
      c10::make_intrusive<c10::ivalue::Future>(c10::PyObjectType::get(), future->devices());
  future->addCallback([of_python](c10::ivalue::Future& done) {
    if (done.hasError()) return of_python->setError(done.exception_ptr());
    c10::IValue value;
    {
      const py::gil_scoped_acquire gil;
      value = torch::jit::toIValue(py::cast(done.value().toTensor()), c10::PyObjectType::get());
    }
    of_python->markCompleted(std::move(value));
  });
  return of_python;
}

}  // namespace

std::vector<DdpParameter> ParametersOf(const std::vector<ParameterTuple>& tuples) {
  std::vector<DdpParameter> parameters;
  for (const auto& [name, dimensions, codec] : tuples) {
    DdpParameter parameter;
    parameter.shape = MakeParameterShape(name, dimensions);
    parameter.codec = codec;
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::vector<ParameterShape> ShapesOf(const NamedSizes& parameters) {
  std::vector<ParameterShape> shapes;
  for (const auto& [name, dimensions] : parameters) {
    shapes.push_back(MakeParameterShape(name, dimensions));
  }
  return shapes;
}

py::dict DictOf(const DdpStats& stats) {
  py::dict d;
  d["steps"] = stats.steps;
  d["skipped"] = stats.skipped;
  d["fp32_steps"] = stats.exact_steps;
  d["early_buckets"] = stats.early;
  d["bytes_up"] = stats.traffic.bytes_up;
  d["bytes_down"] = stats.traffic.bytes_down;
  d["fp32_bytes_up"] = stats.fp32_bytes_up;
  d["uncompressed_bytes_up"] = stats.uncompressed_bytes_up;
  d["coordinates"] = stats.reducer.coordinates;
  d["encode_seconds"] = stats.reducer.encode_seconds;
  d["wire_seconds"] = stats.traffic.transmit_seconds;
  d["wait_seconds"] = stats.reducer.wait_seconds;
  d["decode_seconds"] = stats.reducer.decode_seconds;
  d["squared_error"] = stats.reducer.squared_error;
  d["squared_norm"] = stats.reducer.squared_norm;
  d["skip_reason"] = stats.skip_reason;
  return d;
}

py::dict DictOf(const Sections& sections) {
  py::dict state;
  for (const auto& [name, bytes] : sections) {
    state[py::str(name)] = py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return state;
}

Sections SectionsOf(const py::dict& state) {
  Sections sections;
  for (const auto& [name, bytes] : state) {
    const auto text = bytes.cast<std::string>();
    sections[name.cast<std::string>()].assign(text.begin(), text.end());
  }
  return sections;
}

void BindDdp(py::module_& module) {
  module.attr("_EXACT_STEPS") = Metric::kFirstSteps;
  py::class_<DdpEngine, std::shared_ptr<DdpEngine>> engine(
      module, "_DdpEngine", "What runs behind DDP's communication hook: see compress().");
  engine.def(py::init(&MakeEngine), py::kw_only(), py::arg("meeting"), py::arg("parameters"),
             py::arg("orders"), py::arg("bucket_elements"), py::arg("seed"), py::arg("threads"),
             py::arg("measure_every"), py::arg("all_reduce_by"), py::arg("shares_link"),
             py::arg("exchange"), py::arg("down"), py::arg("has_uncompressed"),
             py::arg("needs_settings"), py::arg("may_discard"), py::arg("on_notice"),
             py::arg("step_seconds"));
  engine.def(
      "register",
      [](const std::shared_ptr<DdpEngine>& e, const py::object& reducer,
         const std::vector<at::Tensor>& parameters) {
        auto& ddp = *reducer.cast<c10d::Reducer*>();
        ddp.register_comm_hook(std::make_unique<DdpHook>(e, parameters, ddp));
      },
      "Makes the engine the communication hook of a DDP model's reducer.");
  py::class_<DdpHook>(module, "_DdpHook", "An engine as a hook that Python calls.")
      .def(
          "__call__",
          [](DdpHook& hook, c10d::GradBucket& bucket) {
            return std::make_shared<torch::jit::PythonFutureWrapper>(
                OfPython(hook.runHook(bucket)));
          },
          py::call_guard<py::gil_scoped_release>());
  engine.def(
      "hook",
      [](const std::shared_ptr<DdpEngine>& e, const py::object& reducer,
         const std::vector<at::Tensor>& parameters) {
        return std::make_unique<DdpHook>(e, parameters, *reducer.cast<c10d::Reducer*>());
      },
      "Returns the hook that register would have made, for a hook of the user's to call.");
  engine.def("exchanges", &DdpEngine::exchanges, "By spec, how means come about.");
  engine.def("stats", [](DdpEngine& e) { return DictOf(e.stats()); });
  engine.def("reset_stats", &DdpEngine::ResetStats);
  engine.def("layers", &LayersOf, "A JSON object for each layer.");
  engine.def("save_state", [](DdpEngine& e) { return DictOf(e.SaveState()); });
  engine.def("load_state", [](DdpEngine& e, const py::dict& state) {
    ThrowIfError(e.LoadState(SectionsOf(state)));
  });
  engine.def("set_units", [](DdpEngine& e, std::vector<double> units) {
    ThrowIfError(e.SetUnits(std::move(units)));
  });
  engine.def(
      "set_metric",
      [](DdpEngine& e, std::vector<std::optional<at::Tensor>> moments, bool uncompressed) {
        std::vector<at::Tensor> tensors;
        for (auto& m : moments) tensors.push_back(m.value_or(at::Tensor()));
        ThrowIfError(e.SetMetric(std::move(tensors), uncompressed));
      },
      py::arg("moments"), py::arg("uncompressed") = false);
  engine.def(
      "restore_discarded",
      [](DdpEngine& e, const py::object& reducer) {
        const auto& ddp = *reducer.cast<c10d::Reducer*>();
        const py::gil_scoped_release release;
        RestoreDiscarded(e, ddp);
      },
      "Takes back what a DDP model's reducer has discarded of the last step.");
  engine.def("set_epoch", [](DdpEngine& e, int epoch) { ThrowIfError(e.SetEpoch(epoch)); });
  engine.def(
      "close",
      [](DdpEngine& e, const std::string& farewell, const std::string& error) {
        e.Close(farewell, error.empty() ? Status() : Internal(error));
      },
      py::arg("farewell"), py::arg("error"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace elastiquant::python
