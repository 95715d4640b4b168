#include "python/bindings/stream.h"

#include <ATen/ops/empty.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/contains.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/stream/codec_stream.h"
#include "python/bindings/codec.h"
#include "python/bindings/errors.h"
#include "python/bindings/frame.h"
#include "python/bindings/tensors.h"

namespace py = pybind11;

namespace elastiquant::python {
namespace {

using Shape = std::vector<int64_t>;

std::string Text(const Shape& shape) { return py::str(py::tuple(py::cast(shape))); }

// Of a tensor's shape, or of one that a damaged state claims. Needs no GIL.
Result<size_t> ElementsOf(const Shape& shape) {
  if (std::ranges::any_of(shape, [](int64_t size) { return size < 0; })) {
    return InvalidArgument("a tensor has no sizes below 0");
  }
  if (Contains(shape, 0)) return size_t{0};
  size_t n = 1;
  for (const int64_t size : shape) {
    if (static_cast<size_t>(size) > kMaxFrameElements / n) {
      return InvalidArgument(
          "a frame holds at most 2^32 - 1 values, and a tensor of this shape has more: cut it "
          "up");
    }
    n *= static_cast<size_t>(size);
  }
  return n;
}

// An entry of a state, which may have been damaged, as `valid` says it must be.
template <typename T>
T Entry(const py::dict& state, const char* key, const char* valid) {
  try {
    return state[key].cast<T>();
  } catch (const py::cast_error&) {
    throw py::value_error(std::string("this is no state of a stream: its '") + key + "' is " +
                          py::repr(state[key]).cast<std::string>() + ", not " + valid);
  }
}

at::Tensor MemoryField(const py::dict& memory, const std::string& name) {
  if (!memory.contains(name)) {
    throw py::value_error("the state's memory lacks '" + name + "'");
  }
  try {
    const at::Tensor tensor = TensorOf(memory[name.c_str()], name.c_str());
    CheckFloats(tensor, name.c_str());
    return tensor;
  } catch (const py::type_error& error) {
    throw py::value_error(std::string("the state's memory is damaged: ") + error.what());
  }
}

// The memory of a state of `elements` values, all of whose fields are checked before room is
// made for any: a damaged shape may claim a lot.
std::vector<at::Tensor> MemoryOf(const py::dict& state, const std::vector<std::string>& names,
                                 size_t elements) {
  if (!py::isinstance<py::dict>(state["memory"])) {
    throw py::value_error("this is no state of a stream: its 'memory' is no dict");
  }
  const py::dict memory = state["memory"];
  std::vector<at::Tensor> fields;
  for (const std::string& name : names) {
    fields.push_back(MemoryField(memory, name));
    const auto size = static_cast<size_t>(fields.back().numel());
    if (size != elements) {
      throw py::value_error("'" + name + "' of the state's memory has " + std::to_string(size) +
                            " values, its shape " + std::to_string(elements));
    }
  }
  for (at::Tensor& field : fields) field = HostFloats(field);
  return fields;
}

std::vector<std::span<const float>> SpansOf(const std::vector<at::Tensor>& tensors) {
  std::vector<std::span<const float>> spans;
  for (const at::Tensor& tensor : tensors) spans.emplace_back(Span(tensor));
  return spans;
}

// The first tensor says what shape all have. For several threads at once: one encodes at a
// time.
class Stream {
 public:
  explicit Stream(CodecPtr codec) : codec_(std::move(codec)) {}

  const CodecPtr& codec() const { return codec_; }
  uint64_t messages() {
    const std::lock_guard lock(mutex_);
    return stream_ ? stream_->messages() : 0;
  }

  Frame Encode(const py::object& object, const py::object& key) {
    const at::Tensor tensor = TensorOf(object, "tensor");
    CheckFloats(tensor, "tensor");
    const StreamKey stream_key = KeyOf(key);
    const Shape shape = tensor.sizes().vec();
    CheckShape(shape);
    const py::gil_scoped_release released;
    Result<Frame> frame = EncodeFloats(HostFloats(tensor), shape, stream_key);
    if (!frame.ok()) throw StatusError(NamingValuesBeyondFp32(frame.status(), tensor));
    return std::move(frame).value();
  }

  py::dict StateDict() {
    const std::lock_guard lock(mutex_);
    py::dict memory, state;
    for (size_t f = 0; stream_ && f < stream_->names().size(); ++f) {
      const at::Tensor copy =
          at::empty({static_cast<int64_t>(stream_->elements())}, at::kFloat);
      std::ranges::copy(stream_->field(f), Span(copy).begin());
      memory[py::str(stream_->names()[f])] = copy;
    }
    state["spec"] = codec_->spec();
    state["shape"] = stream_ ? py::object(py::tuple(py::cast(shape_))) : py::none();
    state["messages"] = stream_ ? stream_->messages() : 0;
    state["memory"] = memory;
    return state;
  }

  void LoadStateDict(const py::dict& state) {
    for (const char* key : {"spec", "shape", "messages", "memory"}) {
      if (!state.contains(key)) {
        throw py::value_error(std::string("this is no state of a stream: it lacks '") + key +
                              "'");
      }
    }
    const auto spec = Entry<std::string>(state, "spec", "text");
    if (spec != codec_->spec()) {
      throw py::value_error("the state is that of codec '" + spec + "', the stream one of '" +
                            codec_->spec() + "'");
    }
    if (state["shape"].is_none()) {
      const std::lock_guard lock(mutex_);
      stream_.reset();
      return;
    }
    const auto shape = Entry<Shape>(state, "shape", "the sizes of a tensor");
    const auto messages = Entry<uint64_t>(state, "messages", "a number from 0");
    const std::vector<at::Tensor> kept =
        MemoryOf(state, codec_->StateFields(), ValueOrThrow(ElementsOf(shape)));
    const std::vector<std::span<const float>> fields = SpansOf(kept);
    CodecStream loaded = ValueOrThrow(StreamFor(shape));
    ThrowIfError(loaded.Restore(fields, messages));
    const std::lock_guard lock(mutex_);
    stream_ = std::move(loaded);
    shape_ = shape;
  }

 private:
  void CheckShape(const Shape& shape) {
    const std::lock_guard lock(mutex_);
    if (!stream_ || shape == shape_) return;
    throw py::value_error("the tensors of this stream have the shape " + Text(shape_) +
                          ", not " + Text(shape) + ": give each tensor a stream of its own");
  }

  Result<CodecStream> StreamFor(const Shape& shape) const {
    EQ_ASSIGN_OR_RETURN(const size_t n, ElementsOf(shape));
    EQ_ASSIGN_OR_RETURN(CodecPtr codec, ForShape(codec_, shape));
    return CodecStream(std::move(codec), n);
  }

  Result<Frame> EncodeFloats(const at::Tensor& floats, const Shape& shape, StreamKey key) {
    const std::lock_guard lock(mutex_);
    std::optional<CodecStream> begun;  // by a message that may fail
    if (!stream_) {
      EQ_ASSIGN_OR_RETURN(begun, StreamFor(shape));
    }
    CodecStream& stream = begun ? *begun : *stream_;
    EQ_ASSIGN_OR_RETURN(Frame frame,
                        FrameWithin(stream.codec().MaxFrameBytes(stream.elements()),
                                    [&](std::span<uint8_t> room) {
                                      return stream.Encode(Span(floats), key,
                                                           ThreadsWorkspace(), room);
                                    }));
    stream.Commit();
    if (begun) {
      stream_ = std::move(begun);
      shape_ = shape;
    }
    return frame;
  }

  const CodecPtr codec_;
  std::mutex mutex_;
  std::optional<CodecStream> stream_;  // none before the first tensor
  Shape shape_;
};

}  // namespace

py::object MakeStream(CodecPtr codec) {
  return py::cast(std::make_unique<Stream>(std::move(codec)));
}

void BindStream(py::module_& module) {
  py::class_<Stream> stream(
      module, "Stream",
      R"(Tensor after tensor of one shape, each encoded with what the codec
remembers of those before: what 'topk|ef' has not sent yet, the velocity of 'dgc', the basis of
'powersgd'. Codec.stream() makes one; its frames are decoded as any are. Safe to share among threads.)");
  stream.attr("__module__") = "elastiquant";
  stream.def("encode", &Stream::Encode, py::arg("tensor"), py::arg("key") = py::none(),
             R"(encode(self, tensor, key=None)
--

The stream's next frame, as Codec.encode() gives it; give each tensor another key, or none.

After an error nothing is remembered of the tensor. Raises what Codec.encode() raises, and
ValueError for a tensor of another shape than the first.)");
  stream.def_property_readonly(
      "codec", [](const Stream& s) { return std::const_pointer_cast<Codec>(s.codec()); },
      "The codec that made it.");
  stream.def_property_readonly("messages", &Stream::messages, "Tensors encoded so far.");
  stream.def("state_dict", &Stream::StateDict,
             R"(state_dict(self)
--

What is remembered, to be saved with torch.save(): 'spec', 'shape', 'messages' and 'memory', a
copy of a flat fp32 tensor for each name in Codec.state.)");
  stream.def("load_state_dict", &Stream::LoadStateDict, py::arg("state_dict"),
             R"(load_state_dict(self, state_dict)
--

Goes on where a stream was saved: what it encodes next has the same bytes. Tensors may be on any
device. Raises ValueError for the state of another codec, or one that is damaged, and leaves the
stream as it was.)");
}

}  // namespace elastiquant::python
