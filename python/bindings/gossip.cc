#include "python/bindings/gossip.h"

#include <pybind11/stl.h>

#include <torch/csrc/utils/pybind.h>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "elastiquant/ddp/gossip_engine.h"
#include "python/bindings/background.h"
#include "python/bindings/communicator.h"
#include "python/bindings/ddp.h"
#include "python/bindings/errors.h"

namespace py = pybind11;

namespace elastiquant::python {
namespace {

using HeldGossip = std::unique_ptr<GossipEngine, DeleteWithoutGil<GossipEngine>>;

GossipOptions GossipOptionsOf(const std::string& algorithm, const std::string& graph, int nodes,
                              const std::string& codec, double step, int64_t delay,
                              uint64_t seed, int threads) {
  GossipOptions options{.kind = ValueOrThrow(ParseGossipKind(algorithm))};
  options.graph = ValueOrThrow(Graph::Parse(graph, static_cast<size_t>(nodes), seed));
  options.codec = codec;
  options.step = step;
  options.delay = delay;
  options.seed = seed;
  options.threads = threads;
  return options;
}

// Throws what would be wrong with these options.
void CheckGossip(const std::string& algorithm, const std::string& graph, int nodes,
                 const std::string& codec, double step, int64_t delay, uint64_t seed,
                 bool goes_on) {
  GossipOptions options = GossipOptionsOf(algorithm, graph, nodes, codec, step, delay, seed, 1);
  if (step == 0) options.step = 1;
  if (goes_on && !CanLoseWorkers(options.kind)) {
    throw py::value_error("on_loss='go-on' is not for algorithm '" + algorithm +
                          "', whose workers remember more of each other than can be mended "
                          "without a lost one: take " +
                          kThoseThatCanLoseWorkers);
  }
  ThrowIfError(GossipNode::Check(std::move(options)));
}

HeldGossip MakeGossipEngine(const py::object& meeting, const NamedSizes& parameters,
                            const std::vector<at::Tensor>& start, const std::string& algorithm,
                            const std::string& graph, const std::string& codec, double step,
                            int64_t delay, uint64_t seed, int threads, bool goes_on) {
  CommunicatorOptions communicator = OptionsOf(meeting);
  GossipOptions options = GossipOptionsOf(algorithm, graph, communicator.world_size, codec,
                                          step, delay, seed, threads);
  const py::gil_scoped_release released;
  const auto end = [](std::unique_ptr<EnduringGroup> group) {
    BackgroundDelete<EnduringGroup>()(group.release());
  };
  return HeldGossip(
      ValueOrThrow(GossipEngine::Create(std::move(communicator), goes_on, ShapesOf(parameters),
                                        std::move(options), start, end))
          .release());
}

}  // namespace

void BindGossip(py::module_& module) {
  module.def("_check_gossip", &CheckGossip, py::kw_only(), py::arg("algorithm"),
             py::arg("graph"), py::arg("nodes"), py::arg("codec"), py::arg("step"),
             py::arg("delay"), py::arg("seed"), py::arg("goes_on"));
  module.def(
      "_spectral_gap",
      [](const std::string& graph, int nodes, uint64_t seed) {
        return ValueOrThrow(Graph::Parse(graph, static_cast<size_t>(nodes), seed))
            ->Factors()
            .gap;
      },
      py::arg("graph"), py::arg("nodes"), py::arg("seed"));
  module.def("_is_edge_file", &IsEdgeFile, py::arg("graph"));
  py::class_<GossipEngine, HeldGossip> engine(module, "_GossipEngine",
                                              "What runs behind Gossip.");
  engine.def(py::init(&MakeGossipEngine), py::kw_only(), py::arg("meeting"),
             py::arg("parameters"), py::arg("start"), py::arg("algorithm"), py::arg("graph"),
             py::arg("codec"), py::arg("step"), py::arg("delay"), py::arg("seed"),
             py::arg("threads"), py::arg("goes_on"));
  engine.def("begin", [](GossipEngine& e, const std::vector<at::Tensor>& weights) {
    const py::gil_scoped_release released;
    ThrowIfError(e.Begin(weights));
  });
  engine.def(
      "finish",
      [](GossipEngine& e, const std::vector<at::Tensor>& weights) {
        const py::gil_scoped_release released;
        bool moved = true;
        ThrowIfError(e.Finish(weights, &moved));
        return moved;
      },
      "Returns whether the weights were finite.");
  engine.def("pause", [](GossipEngine& e, const std::vector<at::Tensor>& weights) {
    const py::gil_scoped_release released;
    ThrowIfError(e.Pause(weights));
  });
  engine.def(
      "odd_replicas", [](GossipEngine& e) { return ValueOrThrow(e.OddReplicas()); },
      "Returns edges on which replicas differ, as '1 > 2, 0 > 3'.",
      py::call_guard<py::gil_scoped_release>());
  engine.def("average", [](GossipEngine& e, const std::vector<at::Tensor>& tensors) {
    const py::gil_scoped_release released;
    return ValueOrThrow(e.Average(tensors));
  });
  engine.def("step", &GossipEngine::step);
  engine.def("doubt", &GossipEngine::doubt);
  engine.def("graph_digest", [](const GossipEngine& e) { return e.graph().Digest(); });
  engine.def("neighbours", &GossipEngine::neighbours);
  engine.def("lost", &GossipEngine::lost);
  engine.def("parts", &GossipEngine::parts);
  engine.def("next_round", &GossipEngine::next_round);
  engine.def("rounds", &GossipEngine::rounds);
  engine.def("stats", [](GossipEngine& e) { return DictOf(e.stats()); });
  engine.def("reset_stats", &GossipEngine::ResetStats);
  engine.def("save_state", [](GossipEngine& e, const std::vector<at::Tensor>& weights) {
    Sections sections;
    {
      const py::gil_scoped_release released;
      sections = ValueOrThrow(e.SaveState(weights));
    }
    return DictOf(sections);
  });
  engine.def("load_state", [](GossipEngine& e, const py::dict& state) {
    Sections sections = SectionsOf(state);
    const py::gil_scoped_release released;
    ThrowIfError(e.LoadState(std::move(sections)));
  });
  engine.def(
      "close",
      [](GossipEngine& e, const std::string& farewell, const std::string& error) {
        e.Close(farewell, error.empty() ? Status() : Internal(error));
      },
      py::arg("farewell"), py::arg("error"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace elastiquant::python
