#include "python/bindings/codec.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "elastiquant/base/contains.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/adapt.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/message_shape.h"
#include "elastiquant/codec/remembering.h"
#include "elastiquant/stream/codec_stream.h"
#include "python/bindings/errors.h"
#include "python/bindings/frame.h"
#include "python/bindings/stream.h"
#include "python/bindings/tensors.h"

namespace py = pybind11;

namespace elastiquant::python {
namespace {

uint64_t KeyNumber(py::handle object) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!number) {
    PyErr_Clear();
    throw py::type_error(
        "key must be a number, or a tuple of four: (seed, step, worker, message)");
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::value_error("the numbers of a key are from 0 to 2^64 - 1, not " +
                          py::repr(number).cast<std::string>());
  }
  return value;
}

StreamKey FreshKey() {
  std::random_device random;
  return {(uint64_t{random()} << 32) | random()};
}

Result<Frame> EncodeTensor(const CodecPtr& flat, const at::Tensor& tensor, StreamKey key) {
  EQ_ASSIGN_OR_RETURN(const CodecPtr codec, ForShape(flat, tensor.sizes()));
  const at::Tensor floats = HostFloats(tensor);
  Result<Frame> frame =
      FrameWithin(codec->MaxFrameBytes(Span(floats).size()), [&](std::span<uint8_t> room) {
        return codec->Encode(Span(floats), key, ThreadsWorkspace(), room);
      });
  if (!frame.ok()) return NamingValuesBeyondFp32(frame.status(), tensor);
  return frame;
}

size_t MaxFrameBytes(const Codec& codec, size_t elements) {
  ThrowIfError(CheckEncodeSizes(elements, 0, 0));
  return codec.MaxFrameBytes(elements);
}

Frame Encode(const CodecPtr& codec, const py::object& object, const py::object& key) {
  ThrowIfError(CheckRemembersNothing(
      *codec, "use codec.stream(), or elastiquant.compress() in training"));
  const at::Tensor tensor = TensorOf(object, "tensor");
  CheckFloats(tensor, "tensor");
  const StreamKey stream = KeyOf(key);
  const py::gil_scoped_release released;
  return ValueOrThrow(EncodeTensor(codec, tensor, stream));
}

CodecPtr MakeOrThrow(std::string_view spec) { return ValueOrThrow(MakeCodec(spec)); }

std::string Name(const Codec& codec) {
  const std::string spec = codec.spec();
  return spec.substr(0, spec.find_first_of(":|"));
}

void BindCodecClass(py::module_& module) {
  // What pybind11 holds cannot be const; all methods that are bound are.
  py::class_<Codec, std::shared_ptr<Codec>> codec(
      module, "Codec",
      R"(Turns tensors into frames. `spec` names it, such as 'dither:bits=2' or 'elastic:bits=4|rans';
codecs() lists all. Immutable, safe to share among threads, picklable; equal to any other of
the same canonical spec.

Raises ValueError for a spec that is wrong, and says what is valid.)");
  codec.attr("__module__") = "elastiquant";
  codec.def(py::init([](std::string_view spec) {
              return std::const_pointer_cast<Codec>(MakeOrThrow(spec));
            }),
            py::arg("spec"), "__init__(self, spec)\n--\n\nThe codec that `spec` names.");
  codec.def_property_readonly("spec", &Codec::spec,
                              "The canonical spec: Codec(codec.spec) == codec.");
  codec.def_property_readonly("name", &Name, "The spec's first word, such as 'dither'.");
  codec.def_property_readonly(
      "codec_class",
      [](const Codec& c) { return std::string(CodecClassName(c.codec_class())); },
      R"(What is promised of Q(v), which a frame of v decodes to.

'lossless' (Q(v) = v), 'unbiased' (E Q(v) = v; of eden nearly so), 'contractive'
(E|Q(v)-v|^2 < |v|^2) or 'biased' (none of these).)");
  codec.def_property_readonly(
      "exchange", [](const Codec& c) { return std::string(ExchangeName(c.exchange())); },
      R"(How workers come to the mean of what they encode.

'two-phase' (the owner of a chunk encodes its mean again), 'all-gather' (every frame goes to
all), 'sparse-scatter' (the owner of a chunk adds the coordinates in it and sends their sum),
'sparse' (whichever of the last two moves fewer bytes), 'factors' (those of matrices are
averaged) or 'integer-sum' (the owner of a chunk adds codes of one scale).)");
  codec.def_property_readonly(
      "state", &Codec::StateFields,
      "The names of what it remembers from message to message; [] for most codecs.");
  codec.def_property_readonly("_has_learning_rate", &HasLearningRate);
  codec.def_property_readonly("_is_adaptive", &IsAdaptive);
  codec.def_property_readonly("_momentum",
                              [](const Codec& self) -> std::optional<std::pair<double, bool>> {
                                const std::optional<OwnMomentum> own = MomentumOf(self);
                                if (!own) return std::nullopt;
                                return std::pair<double, bool>(own->factor, own->nesterov);
                              });
  codec.def("nmse_bound", &Codec::NmseBound, py::arg("elements"),
            R"(nmse_bound(self, elements)
--

The least known upper bound on E|Q(v)-v|^2 / |v|^2 of any v of so many values, or None.)");
  codec.def("max_frame_bytes", &MaxFrameBytes, py::arg("elements"),
            R"(max_frame_bytes(self, elements)
--

The most bytes that a frame of so many values can have. Raises ValueError for more than the
2^32 - 1 that a frame can hold.)");
  codec.def(
      "encode",
      [](const std::shared_ptr<Codec>& c, const py::object& tensor, const py::object& key) {
        return Encode(c, tensor, key);
      },
      py::arg("tensor"), py::arg("key") = py::none(),
      R"(encode(self, tensor, key=None)
--

One frame of all values of a tensor, in C order.

tensor: dense, of floating point, of any shape, up to 2^32 - 1 values. Contiguous fp32 of the
    host is read where it lies; all else is first copied to that (fp16, bf16 and strided
    tensors, and from a GPU, for which this waits). Two or more dimensions are one matrix,
    size(0) by all others, to codecs of matrices (atomo-svd); others see values only.
key: the stream of random numbers: (seed, step, worker, message), each from 0 to 2^64 - 1, or
    the key of another frame. The same values and key give the same bytes on every machine.
    None takes a fresh one. Never give two tensors the same key: their errors would be alike,
    and would not average out.

Releases the GIL. Raises NonFiniteError for NaN or infinity, TypeError for integers or sparse
tensors, RuntimeError ("out of range") where values are finite, but a norm or sum of them that
the codec needs is beyond fp32, ValueError for codecs that remember (codec.state): a tensor by
itself would drop what they keep for the next, so make a stream(), or let compress() run them.)");
  codec.def(
      "decode",
      [](const Codec&, const py::object& frame, const py::object& out) {
        return DecodeToTensor(FrameOf(frame), out);
      },
      py::arg("frame"), py::arg("out") = py::none(),
      R"(decode(self, frame, out=None)
--

Frame.decode(out) of a frame or its bytes. A frame says itself how it decodes, so that any
codec decodes any frame.)");
  codec.def(
      "stream", [](const std::shared_ptr<Codec>& c) { return MakeStream(c); },
      R"(stream(self)
--

A new Stream, for codecs that remember something of each tensor for the next (Codec.state).)");
  codec.def("__repr__", [](const Codec& c) { return "Codec('" + c.spec() + "')"; });
  codec.def("__hash__", [](const Codec& c) { return py::hash(py::str(c.spec())); });
  codec.def(
      "__eq__", [](const Codec& a, const Codec& b) { return a.spec() == b.spec(); },
      py::is_operator());
  codec.def(py::pickle([](const Codec& c) { return c.spec(); },
                       [](const std::string& spec) {
                         return std::const_pointer_cast<Codec>(MakeOrThrow(spec));
                       }));
}

void BindCodecInfo(py::module_& module) {
  py::class_<CodecParameter> parameter(module, "CodecParameter",
                                       "A key that a codec's spec may have.");
  parameter.attr("__module__") = "elastiquant";
  parameter.def_readonly("name", &CodecParameter::name, "Such as 'bits'.");
  parameter.def_readonly("default", &CodecParameter::default_value, "Such as '4'.");
  parameter.def_readonly("help", &CodecParameter::help, "Its values, and what it sets.");
  parameter.def("__repr__", [](const CodecParameter& p) {
    return "CodecParameter(" + p.name + "=" + p.default_value + ": " + p.help + ")";
  });
  py::class_<CodecInfo> info(module, "CodecInfo", "One registered scheme, of codecs().");
  info.attr("__module__") = "elastiquant";
  info.def_readonly("name", &CodecInfo::name, "Such as 'elastic'.");
  info.def_readonly("spec", &CodecInfo::spec, "A spec that works as it stands.");
  info.def_property_readonly(
      "codec_class",
      [](const CodecInfo& i) { return std::string(CodecClassName(i.codec_class)); },
      "As Codec.codec_class, with its defaults.");
  info.def_readonly("summary", &CodecInfo::summary, "One line.");
  info.def_readonly("parameters", &CodecInfo::parameters, "A list of CodecParameter.");
  info.def_readonly("modifiers", &CodecInfo::modifiers,
                    "What may follow its spec after '|', besides what may follow any.");
  info.def("__repr__", [](const CodecInfo& i) {
    return "CodecInfo('" + i.spec + "', " + std::string(CodecClassName(i.codec_class)) + ": " +
           i.summary + ")";
  });
  module.def("codecs", &ListCodecs, R"(codecs()
--

All registered codecs, as a list of CodecInfo. After any codec's spec may also follow '|ef'
(error feedback), '|dgc' (DGC's momentum and memory) and '|rotate'.)");
}

}  // namespace

StreamKey KeyOf(const py::object& key) {
  if (key.is_none()) return FreshKey();
  if (!py::isinstance<py::tuple>(key)) return {KeyNumber(key)};
  const auto parts = key.cast<py::tuple>();
  if (parts.size() != 4) {
    throw py::value_error("a key of several numbers is (seed, step, worker, message), not " +
                          py::repr(key).cast<std::string>());
  }
  return DeriveKey(KeyNumber(parts[0]), KeyNumber(parts[1]), KeyNumber(parts[2]),
                   KeyNumber(parts[3]));
}

Result<CodecPtr> ForShape(const CodecPtr& codec, at::IntArrayRef shape) {
  if (shape.size() < 2 || Contains(shape, 0)) return codec;
  const TensorShape matrix = MatrixShape(std::vector<size_t>(shape.begin(), shape.end()));
  return CodecForShapes(codec, std::span(&matrix, 1));
}

void BindCodec(py::module_& module) {
  BindCodecClass(module);
  BindCodecInfo(module);
}

}  // namespace elastiquant::python
