#include "python/bindings/frame.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "elastiquant/codec/frame.h"
#include "python/bindings/errors.h"
#include "python/bindings/tensors.h"

namespace elastiquant::python {
namespace {

double BitsPerCoordinate(const Frame& frame) {
  const size_t n = frame.summary().elements;
  if (n == 0) return std::numeric_limits<double>::quiet_NaN();
  return 8.0 * static_cast<double>(frame.bytes().size()) / static_cast<double>(n);
}

std::string Repr(const Frame& frame) {
  char bits[48] = "";
  if (frame.summary().elements > 0) {
    std::snprintf(bits, sizeof(bits), ", %.3g bits per coordinate", BitsPerCoordinate(frame));
  }
  return "<elastiquant.Frame " + frame.summary().codec + ": " +
         std::to_string(frame.summary().elements) + " values in " +
         std::to_string(frame.bytes().size()) + " bytes" + bits + ">";
}

std::string_view Text(const Frame& frame) {
  return {reinterpret_cast<const char*>(frame.bytes().data()), frame.bytes().size()};
}

py::bytes Bytes(const Frame& frame) { return {Text(frame).data(), Text(frame).size()}; }

// Bytes that InspectFrame refuses are a wrong argument, also where it takes them for a claim
// too large or for a frame of another build: a damaged byte looks like that, too.
[[noreturn]] void RefuseBytes(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOutOfRange:
      throw StatusError(InvalidArgument(status.message()));
    case StatusCode::kUnsupported:
      throw StatusError(CorruptData(status.message()));
    default:
      throw StatusError(status);
  }
}

Frame FrameFromBuffer(const py::buffer& buffer, size_t max_elements) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  const auto* begin = static_cast<const uint8_t*>(view.buf);
  std::vector<uint8_t> bytes(begin, begin + view.len);
  PyBuffer_Release(&view);
  Result<Frame> frame = Frame::Of(std::move(bytes), max_elements);
  if (!frame.ok()) RefuseBytes(frame.status());
  return std::move(frame).value();
}

Frame FromBytes(py::handle data, size_t max_elements) {
  const Frame frame = FrameOf(data, max_elements);
  if (frame.summary().elements > max_elements) {  // data is a Frame, in which it was no matter
    RefuseBytes(InspectFrame(frame.bytes(), max_elements).status());
  }
  return frame;
}

void Decode(const Frame& frame, const at::Tensor& floats) {
  ThrowIfError(DecodeFrame(frame.bytes(), ThreadsWorkspace(), Span(floats)));
}

void CheckOut(const Frame& frame, const at::Tensor& out) {
  CheckFloats(out, "out");
  if (static_cast<size_t>(out.numel()) != frame.summary().elements) {
    throw py::value_error("the frame has " + std::to_string(frame.summary().elements) +
                          " values, out has room for " + std::to_string(out.numel()) +
                          "; they must be equal");
  }
  if (out.requires_grad() && at::GradMode::is_enabled()) {
    throw py::value_error(
        "out requires grad, and decoding has no gradient: give out.detach(), or decode under "
        "torch.no_grad()");
  }
}

// Where a decoder can write without a copy in between.
bool IsPlain(const at::Tensor& out) {
  return out.device().is_cpu() && out.scalar_type() == at::kFloat && out.is_contiguous() &&
         !out.is_neg() && !out.is_inference();
}

void DecodeInto(const Frame& frame, const at::Tensor& out) {
  if (IsPlain(out)) {
    Decode(frame, out);
    out.unsafeGetTensorImpl()->bump_version();  // as every write in place does, for autograd
    return;
  }
  const at::Tensor floats =
      at::empty({static_cast<int64_t>(frame.summary().elements)}, at::kFloat);
  Decode(frame, floats);
  CopyInto(out, floats);
}

}  // namespace

Frame::Frame(std::vector<uint8_t> bytes, FrameSummary summary)
    : bytes_(std::make_shared<const std::vector<uint8_t>>(std::move(bytes))),
      summary_(std::move(summary)) {}

Result<Frame> Frame::Of(std::vector<uint8_t> bytes, size_t max_elements) {
  EQ_ASSIGN_OR_RETURN(FrameSummary summary, InspectFrame(bytes, max_elements));
  return Frame(std::move(bytes), std::move(summary));
}

Workspace& ThreadsWorkspace() {
  thread_local Workspace work(1);
  return work;
}

Frame FrameOf(py::handle object, size_t max_elements) {
  if (py::isinstance<Frame>(object)) return object.cast<Frame>();
  if (!PyObject_CheckBuffer(object.ptr())) {
    throw py::type_error(std::string("a Frame or its bytes are needed, not ") +
                         Py_TYPE(object.ptr())->tp_name);
  }
  return FrameFromBuffer(py::reinterpret_borrow<py::buffer>(object), max_elements);
}

py::object DecodeToTensor(const Frame& frame, const py::object& out) {
  if (!out.is_none()) {
    const at::Tensor tensor = TensorOf(out, "out");
    CheckOut(frame, tensor);
    const py::gil_scoped_release released;
    DecodeInto(frame, tensor);
    return out;
  }
  at::Tensor floats;
  {
    const py::gil_scoped_release released;
    floats = at::empty({static_cast<int64_t>(frame.summary().elements)}, at::kFloat);
    Decode(frame, floats);
  }
  return py::cast(floats);
}

void BindFrame(py::module_& module) {
  py::class_<Frame> frame(module, "Frame", py::buffer_protocol(),
                          R"(One encoded tensor: all that travels on a wire.

bytes(frame) and memoryview(frame) give its bytes, Frame.from_bytes() takes them. A frame
decodes anywhere, without the codec that made it. Immutable, hashable, picklable.)");
  frame.attr("__module__") = "elastiquant";
  frame.def_static("from_bytes", &FromBytes, py::arg("data"), py::kw_only(),
                   py::arg("max_elements") = kDefaultMaxElements,
                   R"(from_bytes(data, *, max_elements=268435456)
--

The frame in `data`: bytes, bytearray, memoryview or any contiguous buffer, which is copied; or
a Frame, which is returned.

max_elements: how many values it may claim to have, since 44 bytes can claim 2^32 - 1. The
    default, 2^28, is a GiB of fp32: more than training sends in one message.

Raises CorruptFrameError if it is no frame, a damaged one, or one of a version or codec that this
build does not know, and ValueError if it claims more than max_elements.)");
  frame.def("decode", &DecodeToTensor, py::arg("out") = py::none(),
            R"(decode(self, out=None)
--

The values, as a new flat fp32 tensor of the host, or written into `out`, which is returned:
a dense tensor of floating point on any device, of any shape with `elements` values.

Releases the GIL. Raises ValueError for an `out` of another size, TypeError for one that does
not hold floats, CorruptFrameError for a damaged frame, which leaves `out` undefined.)");
  frame.def_property_readonly(
      "codec", [](const Frame& f) { return f.summary().codec; },
      "The name of the codec that decodes it, such as 'dither'.");
  frame.def_property_readonly(
      "elements", [](const Frame& f) { return f.summary().elements; }, "Values in it.");
  frame.def_property_readonly(
      "nbytes", [](const Frame& f) { return f.bytes().size(); },
      "Bytes on the wire, header and checksum included.");
  frame.def_property_readonly(
      "key", [](const Frame& f) { return f.summary().key.value; },
      "The key of its random numbers: Codec.encode(tensor, frame.key) gives it again.");
  frame.def_property_readonly(
      "variance", [](const Frame& f) { return f.summary().variance; },
      "The mean variance of a value's error, for frames that tell it exactly; or None.");
  frame.def_property_readonly("bits_per_coordinate", &BitsPerCoordinate,
                              "8 * nbytes / elements; nan if it is empty.");
  frame.def_buffer([](const Frame& f) {
    return py::buffer_info(const_cast<uint8_t*>(f.bytes().data()),
                           static_cast<py::ssize_t>(f.bytes().size()), /*readonly=*/true);
  });
  frame.def("__bytes__", &Bytes);
  frame.def("__len__", [](const Frame& f) { return f.bytes().size(); });
  frame.def("__repr__", &Repr);
  frame.def("__hash__", [](const Frame& f) { return std::hash<std::string_view>()(Text(f)); });
  frame.def(
      "__eq__", [](const Frame& a, const Frame& b) { return Text(a) == Text(b); },
      py::is_operator());
  // Who unpickles trusts the sender with more than a size.
  frame.def(py::pickle(&Bytes, [](const py::bytes& state) {
    return FrameFromBuffer(state, kMaxFrameElements);
  }));
}

}  // namespace elastiquant::python
