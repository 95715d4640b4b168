#include "python/bindings/rounds.h"

#include <pybind11/stl.h>

#include <torch/csrc/utils/pybind.h>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "elastiquant/ddp/fragment_engine.h"
#include "elastiquant/layers/fragments.h"
#include "elastiquant/protocol/round_schedule.h"
#include "python/bindings/background.h"
#include "python/bindings/communicator.h"
#include "python/bindings/ddp.h"
#include "python/bindings/errors.h"

namespace py = pybind11;

namespace elastiquant::python {
namespace {

using HeldEngine = std::unique_ptr<FragmentEngine, DeleteWithoutGil<FragmentEngine>>;

HeldEngine MakeFragmentEngine(const py::object& meeting, const NamedSizes& parameters,
                              const std::vector<size_t>& fragments, size_t scalars,
                              const std::string& codec, const std::string& exact,
                              const std::string& exchange, const std::string& down,
                              size_t bucket_elements, uint64_t seed, int threads,
                              uint64_t measure_every, const std::vector<double>& weights,
                              bool goes_on) {
  CommunicatorOptions communicator = OptionsOf(meeting);
  FragmentOptions options;
  options.fragments = fragments;
  options.codec = codec;
  options.exact = exact;
  options.exchange = exchange;
  options.down = down;
  options.bucket_elements = bucket_elements;
  options.scalars = scalars;
  options.reducer.seed = seed;
  options.reducer.threads = threads;
  options.reducer.weights = weights;
  options.reducer.measure_every = measure_every;
  const py::gil_scoped_release released;
  const auto end = [](std::unique_ptr<EnduringGroup> group) {
    BackgroundDelete<EnduringGroup>()(group.release());
  };
  return HeldEngine(
      ValueOrThrow(FragmentEngine::Create(std::move(communicator), goes_on,
                                          ShapesOf(parameters), std::move(options), end))
          .release());
}

// Whether a send or an apply, the fragment, its round.
using ActionTuple = std::tuple<std::string, size_t, int64_t>;

std::vector<ActionTuple> TuplesOf(const std::vector<FragmentAction>& actions) {
  std::vector<ActionTuple> tuples;
  for (const FragmentAction& a : actions) {
    const bool sends = a.kind == FragmentAction::Kind::kSend;
    tuples.emplace_back(sends ? "send" : "apply", a.fragment, a.round);
  }
  return tuples;
}

}  // namespace

void BindRounds(py::module_& module) {
  module.def(
      "_layers", [](const NamedSizes& parameters) { return LayersOf(ShapesOf(parameters)); },
      py::arg("parameters"));
  module.def(
      "_balanced_fragments",
      [](const NamedSizes& parameters, size_t fragments) {
        return ValueOrThrow(BalancedFragments(ShapesOf(parameters), fragments));
      },
      py::arg("parameters"), py::arg("fragments"));
  py::class_<RoundSchedule>(module, "_RoundSchedule",
                            "Which fragment is sent and applied when.")
      .def(py::init([](int64_t every, size_t fragments, int64_t delay) {
             return ValueOrThrow(RoundSchedule::Make({every, fragments, delay}));
           }),
           py::kw_only(), py::arg("every"), py::arg("fragments"), py::arg("delay"))
      .def("options",
           [](const RoundSchedule& s) {
             const RoundScheduleOptions& o = s.options();
             return std::tuple(o.every, o.fragments, o.delay);
           })
      .def("after",
           [](const RoundSchedule& s, int64_t step) { return TuplesOf(s.After(step)); })
      .def("at_end",
           [](const RoundSchedule& s, int64_t step) { return TuplesOf(s.AtEnd(step)); })
      .def("is_under_way", &RoundSchedule::IsUnderWay, py::arg("fragment"), py::arg("step"));
  py::class_<FragmentEngine, HeldEngine> engine(module, "_FragmentEngine",
                                                "What runs behind DiLoCo and LocalSGD.");
  engine.def(py::init(&MakeFragmentEngine), py::kw_only(), py::arg("meeting"),
             py::arg("parameters"), py::arg("fragments"), py::arg("scalars"), py::arg("codec"),
             py::arg("exact"), py::arg("exchange"), py::arg("down"), py::arg("bucket_elements"),
             py::arg("seed"), py::arg("threads"), py::arg("measure_every"), py::arg("weights"),
             py::arg("goes_on"));
  engine.def("begin", [](FragmentEngine& e, size_t fragment, uint64_t round,
                         const std::vector<at::Tensor>& tensors) {
    const py::gil_scoped_release released;
    ThrowIfError(e.Begin(fragment, round, tensors));
  });
  engine.def(
      "finish",
      [](FragmentEngine& e, size_t fragment, const std::vector<at::Tensor>& tensors) {
        const py::gil_scoped_release released;
        const StepOutcome outcome = ValueOrThrow(e.Finish(fragment, tensors));
        return outcome.skipped ? outcome.reason : std::string();
      },
      "Returns why the round is skipped, or nothing.");
  engine.def("specs", &FragmentEngine::specs);
  engine.def("exchange", &FragmentEngine::exchange);
  engine.def("lost", &FragmentEngine::lost);
  engine.def("stats", [](FragmentEngine& e) { return DictOf(e.stats()); });
  engine.def("reset_stats", &FragmentEngine::ResetStats);
  engine.def("layers", [](FragmentEngine& e) {
    std::vector<std::string> lines;
    for (const nlohmann::json& line : e.Layers()) lines.push_back(line.dump());
    return lines;
  });
  engine.def("save_state",
             [](FragmentEngine& e) { return DictOf(ValueOrThrow(e.SaveState())); });
  engine.def("load_state", [](FragmentEngine& e, const py::dict& state) {
    ThrowIfError(e.LoadState(SectionsOf(state)));
  });
  engine.def(
      "close",
      [](FragmentEngine& e, const std::string& farewell, const std::string& error) {
        e.Close(farewell, error.empty() ? Status() : Internal(error));
      },
      py::arg("farewell"), py::arg("error"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace elastiquant::python
