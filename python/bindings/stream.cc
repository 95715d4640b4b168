#include "python/bindings/stream.h"

#include <ATen/ops/empty.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
    return ValueOrThrow(EncodeFloats(HostFloats(tensor), shape, stream_key));
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
    const auto spec = state["spec"].cast<std::string>();
    if (spec != codec_->spec()) {
      throw py::value_error("the state is that of codec '" + spec + "', the stream one of '" +
                            codec_->spec() + "'");
    }
    if (state["shape"].is_none()) {
      const std::lock_guard lock(mutex_);
      stream_.reset();
      return;
    }
    const auto shape = state["shape"].cast<Shape>();
    CodecStream loaded = ValueOrThrow(StreamFor(shape));
    const py::dict memory = state["memory"];
    std::vector<at::Tensor> kept;
    std::vector<std::span<const float>> fields;
    for (const std::string& name : loaded.names()) {
      if (!memory.contains(name.c_str())) {
        throw py::value_error("the state's memory lacks '" + name + "'");
      }
      const at::Tensor tensor = TensorOf(memory[name.c_str()], name.c_str());
      CheckFloats(tensor, name.c_str());
      kept.push_back(HostFloats(tensor));
      fields.emplace_back(Span(kept.back()));
    }
    ThrowIfError(loaded.Restore(fields, state["messages"].cast<uint64_t>()));
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
    size_t n = 1;
    for (const int64_t size : shape) n *= static_cast<size_t>(size);
    EQ_RETURN_IF_ERROR(CheckEncodeSizes(n, 0, 0));
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
