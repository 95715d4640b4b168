// elastiquant._core: what of the Python package is C++. One Bind function for each subject.
#include <pybind11/pybind11.h>

#include "python/bindings/background.h"
#include "python/bindings/codec.h"
#include "python/bindings/collectives.h"
#include "python/bindings/communicator.h"
#include "python/bindings/ddp.h"
#include "python/bindings/errors.h"
#include "python/bindings/frame.h"
#include "python/bindings/gossip.h"
#include "python/bindings/rounds.h"
#include "python/bindings/stream.h"
#include "python/bindings/virtual_workers.h"

PYBIND11_MODULE(_core, module) {
  // Docstrings begin with a signature of their own, which inspect and help() understand.
  pybind11::options options;
  options.disable_function_signatures();
  module.doc() = "What of elastiquant is C++; use it through the package.";
  module.attr("__version__") = ELASTIQUANT_VERSION;
  elastiquant::python::BindBackground(module);
  elastiquant::python::BindErrors(module);
  elastiquant::python::BindFrame(module);
  elastiquant::python::BindCodec(module);
  elastiquant::python::BindStream(module);
  elastiquant::python::BindCommunicator(module);
  elastiquant::python::BindDdp(module);
  elastiquant::python::BindCollectives(module);
  elastiquant::python::BindRounds(module);
  elastiquant::python::BindGossip(module);
  elastiquant::python::BindVirtualWorkers(module);
}
