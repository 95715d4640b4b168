#include "python/bindings/errors.h"

namespace py = pybind11;

namespace elastiquant::python {
namespace {

// Owned by the module, which is never unloaded.
PyObject* non_finite_error = nullptr;
PyObject* corrupt_frame_error = nullptr;

PyObject* ValueErrorClass(py::module_& module, const char* name, const char* doc) {
  const std::string full_name = std::string("elastiquant.") + name;
  PyObject* made =
      PyErr_NewExceptionWithDoc(full_name.c_str(), doc, PyExc_ValueError, /*dict=*/nullptr);
  if (made == nullptr) throw py::error_already_set();
  module.add_object(name, made);
  return made;
}

py::object DistBackendError() {
  return py::module_::import("torch.distributed").attr("DistBackendError");
}

void Raise(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return PyErr_SetString(PyExc_ValueError, status.message().c_str());
    case StatusCode::kNonFinite:
      return PyErr_SetString(non_finite_error, status.message().c_str());
    case StatusCode::kCorruptData:
      return PyErr_SetString(corrupt_frame_error, status.message().c_str());
    case StatusCode::kUnavailable:
      return PyErr_SetString(DistBackendError().ptr(), status.message().c_str());
    default:
      return PyErr_SetString(PyExc_RuntimeError, status.ToString().c_str());
  }
}

void Translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const StatusError& e) {
    Raise(e.status());
  }
}

}  // namespace

void BindErrors(py::module_& module) {
  non_finite_error = ValueErrorClass(module, "NonFiniteError",
                                     "A value to encode is NaN or infinite, or finite but "
                                     "beyond fp32; the message has its coordinate. Nothing is "
                                     "sent for it.");
  corrupt_frame_error =
      ValueErrorClass(module, "CorruptFrameError",
                      "Bytes are no frame, a damaged one, or one of a version or codec that "
                      "this build does not know; the message names the check.");
  py::register_local_exception_translator(&Translate);
}

}  // namespace elastiquant::python
