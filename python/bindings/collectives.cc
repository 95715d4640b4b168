#include "python/bindings/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <pybind11/stl.h>

#include <torch/csrc/utils/pybind.h>
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "elastiquant/ddp/tensor_collectives.h"
#include "python/bindings/background.h"
#include "python/bindings/communicator.h"
#include "python/bindings/errors.h"
#include "python/bindings/tensors.h"

namespace py = pybind11;

namespace elastiquant::python {
namespace {

BackgroundPtr<TensorCollectives> MakeCollectives(const py::object& meeting, int threads) {
  CommunicatorOptions options = OptionsOf(meeting);
  const py::gil_scoped_release released;
  return BackgroundPtr<TensorCollectives>(
      ValueOrThrow(TensorCollectives::Create(std::move(options), threads)).release());
}

void AllReduceTensor(TensorCollectives& workers, const py::object& object,
                     const std::shared_ptr<Codec>& codec, uint64_t seed, bool mean) {
  const at::Tensor tensor = TensorOf(object, "tensor");
  CheckFloats(tensor, "tensor");
  const py::gil_scoped_release released;
  at::Tensor floats = HostFloats(tensor);
  // An error must leave the tensor as it was.
  if (floats.is_alias_of(tensor)) floats = floats.clone();
  const std::span<float> values = Span(floats);
  ThrowIfError(workers.Mean(values, codec, seed));
  const auto n = static_cast<float>(workers.world_size());
  if (!mean) std::ranges::transform(values, values.begin(), [n](float v) { return v * n; });
  CopyInto(tensor, floats);
}

std::vector<at::Tensor> AllGather(TensorCollectives& workers, const py::object& object,
                                  const Codec& codec, uint64_t seed) {
  const at::Tensor tensor = TensorOf(object, "tensor");
  CheckFloats(tensor, "tensor");
  const py::gil_scoped_release released;
  const at::Tensor floats = HostFloats(tensor);
  std::vector<at::Tensor> all;
  for (std::vector<float>& values : ValueOrThrow(workers.Gather(Span(floats), codec, seed))) {
    const auto size = static_cast<int64_t>(values.size());
    all.push_back(at::empty(tensor.sizes(), tensor.options()));
    CopyInto(all.back(), at::from_blob(values.data(), {size}, at::kFloat));
  }
  return all;
}

}  // namespace

void BindCollectives(py::module_& module) {
  py::class_<TensorCollectives, BackgroundPtr<TensorCollectives>>(
      module, "_TensorCollectives", "What runs behind all_reduce() and all_gather().")
      .def(py::init(&MakeCollectives), py::kw_only(), py::arg("meeting"), py::arg("threads"))
      .def("set_farewell", &TensorCollectives::SetFarewell, py::arg("why"))
      .def(
          "abort", [](TensorCollectives& t, const std::string& why) { t.Abort(Internal(why)); },
          py::arg("why"), py::call_guard<py::gil_scoped_release>())
      .def("all_reduce", &AllReduceTensor, py::arg("tensor"), py::arg("codec"), py::arg("seed"),
           py::arg("mean"))
      .def("all_gather", &AllGather, py::arg("tensor"), py::arg("codec"), py::arg("seed"));
}

}  // namespace elastiquant::python
