#include "python/bindings/virtual_workers.h"

#include <pybind11/stl.h>

#include <torch/csrc/utils/pybind.h>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/ddp/virtual_workers.h"
#include "python/bindings/background.h"
#include "python/bindings/ddp.h"
#include "python/bindings/errors.h"
#include "python/bindings/tensors.h"

namespace py = pybind11;

namespace elastiquant::python {
namespace {

BackgroundPtr<VirtualWorkers> MakeWorkers(int workers,
                                          const std::vector<ParameterTuple>& parameters,
                                          size_t bucket_elements, uint64_t seed, int threads,
                                          uint64_t measure_every, const std::string& exchange,
                                          const std::map<std::string, std::string>& down) {
  DdpOptions options;
  options.bucket_elements = bucket_elements;
  options.seed = seed;
  options.threads = threads;
  options.measure_every = measure_every;
  options.exchange = exchange;
  options.down = down;
  const py::gil_scoped_release released;
  return BackgroundPtr<VirtualWorkers>(
      ValueOrThrow(VirtualWorkers::Create(workers, ParametersOf(parameters), options))
          .release());
}

}  // namespace

void BindVirtualWorkers(py::module_& module) {
  py::class_<VirtualWorkers, BackgroundPtr<VirtualWorkers>>(
      module, "_VirtualWorkers", "What runs behind elastiquant.VirtualWorkers.")
      .def(py::init(&MakeWorkers), py::kw_only(), py::arg("workers"), py::arg("parameters"),
           py::arg("bucket_elements"), py::arg("seed"), py::arg("threads"),
           py::arg("measure_every"), py::arg("exchange"), py::arg("down"))
      .def("offsets", &VirtualWorkers::offsets)
      .def("elements", &VirtualWorkers::elements)
      .def(
          "all_reduce",
          [](VirtualWorkers& workers, const py::object& object) {
            const at::Tensor gradients = TensorOf(object, "gradients");
            const py::gil_scoped_release released;
            ThrowIfError(workers.AllReduce(gradients));
          },
          py::arg("gradients"))
      .def("set_epoch",
           [](VirtualWorkers& workers, int epoch) { ThrowIfError(workers.SetEpoch(epoch)); })
      .def("save_state",
           [](VirtualWorkers& workers) {
             py::list states;
             for (const Sections& sections : workers.SaveState())
               states.append(DictOf(sections));
             return states;
           })
      .def("load_state",
           [](VirtualWorkers& workers, const std::vector<py::dict>& states) {
             std::vector<Sections> sections;
             for (const py::dict& state : states) sections.push_back(SectionsOf(state));
             ThrowIfError(workers.LoadState(sections));
           })
      .def("exchanges", &VirtualWorkers::exchanges)
      .def("stats", [](VirtualWorkers& workers) { return DictOf(workers.stats()); })
      .def("reset_stats", &VirtualWorkers::ResetStats)
      .def("layers", [](VirtualWorkers& workers) {
        std::vector<std::string> lines;
        for (const nlohmann::json& line : workers.Layers()) lines.push_back(line.dump());
        return lines;
      });
}

}  // namespace elastiquant::python
