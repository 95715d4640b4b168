#include "python/bindings/communicator.h"

#include <torch/csrc/utils/pybind.h>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "elastiquant/c10d/backend_transport.h"
#include "elastiquant/c10d/tcp_store_network.h"
#include "elastiquant/net/links.h"
#include "python/bindings/errors.h"

namespace py = pybind11;

namespace elastiquant {

namespace {

// PyTorch's Python makes its ProcessGroupGloo without Gloo's headers, which its wheel lacks.
class PythonGlooNetwork final : public TcpStoreNetwork {
 public:
  Result<std::unique_ptr<Transport>> Connect(const TransportOptions& options) override {
    const py::gil_scoped_acquire gil;
    try {
      const py::object group =
          py::module_::import("elastiquant._group")
              .attr("connect_gloo")(options.store_host, options.store_port,
                                    options.store_prefix, options.rank, options.world_size,
                                    static_cast<double>(options.connect_timeout.count()) / 1e3,
                                    options.one_machine);
      return MakeBackendTransport(
          c10::intrusive_ptr<c10d::Backend>::reclaim_copy(group.cast<c10d::Backend*>()));
    } catch (const std::exception& e) {
      return Unavailable("connecting the workers failed: " + std::string(e.what()));
    }
  }
};

}  // namespace

namespace python {

CommunicatorOptions OptionsOf(const py::object& meeting) {
  CommunicatorOptions options;
  options.network = std::make_shared<PythonGlooNetwork>();
  options.rank = meeting.attr("rank").cast<int>();
  options.world_size = meeting.attr("world_size").cast<int>();
  options.store_host = meeting.attr("host").cast<std::string>();
  options.store_port = meeting.attr("port").cast<uint16_t>();
  const py::object store = meeting.attr("store");
  if (!store.is_none()) options.store = store.cast<std::shared_ptr<StoreHost>>();
  const std::chrono::duration<double> timeout(meeting.attr("timeout").cast<double>());
  options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
  const std::chrono::duration<double> stall_timeout(
      meeting.attr("stall_timeout").cast<double>());
  options.stall_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(stall_timeout);
  options.connect_timeout =
      std::max<std::chrono::milliseconds>(options.timeout, std::chrono::seconds(20));
  const py::object link = meeting.attr("link");
  if (!link.is_none()) {
    const Links links = ValueOrThrow(ReadLinks(link.cast<std::string>()));
    ThrowIfError(links.Check(options.world_size));
    options.link = links.access;
    options.wires = links.WiresOf(options.rank);
  }
  return options;
}

void BindCommunicator(py::module_& module) {
  module.def(
      "_check_link", [](const std::string& link) { (void)ValueOrThrow(ReadLinks(link)); },
      py::arg("link"), "Raises ValueError unless the spec names a link to emulate.");
  py::class_<StoreHost, std::shared_ptr<StoreHost>>(module, "_StoreHost",
                                                    "The key-value store of some workers.")
      .def(py::init([](bool this_machine_only) {
             return std::shared_ptr<StoreHost>(ValueOrThrow(
                 HostTcpStore(0, this_machine_only ? Reach::kThisMachine : Reach::kAnywhere)));
           }),
           py::kw_only(), py::arg("this_machine_only"))
      .def_property_readonly("port", &StoreHost::port);
}

}  // namespace python
}  // namespace elastiquant
