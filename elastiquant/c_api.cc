#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/untrusted.h"
#include "elastiquant/elastiquant.h"
#include "elastiquant/stream/codec_stream.h"

using elastiquant::InvalidArgument;
using elastiquant::Status;
using elastiquant::StatusCode;

struct eq_codec {
  std::shared_ptr<const elastiquant::Codec> codec;
  std::string spec;
};
struct eq_workspace {
  elastiquant::Workspace work;
};
struct eq_stream {
  elastiquant::CodecStream stream;
};

namespace {

static_assert(EQ_OK == static_cast<int>(StatusCode::kOk));
static_assert(EQ_INVALID_ARGUMENT == static_cast<int>(StatusCode::kInvalidArgument));
static_assert(EQ_CORRUPT_DATA == static_cast<int>(StatusCode::kCorruptData));
static_assert(EQ_NON_FINITE == static_cast<int>(StatusCode::kNonFinite));
static_assert(EQ_OUT_OF_RANGE == static_cast<int>(StatusCode::kOutOfRange));
static_assert(EQ_BUFFER_TOO_SMALL == static_cast<int>(StatusCode::kBufferTooSmall));
static_assert(EQ_UNSUPPORTED == static_cast<int>(StatusCode::kUnsupported));
static_assert(EQ_NOT_FOUND == static_cast<int>(StatusCode::kNotFound));
static_assert(EQ_IO == static_cast<int>(StatusCode::kIo));
static_assert(EQ_UNAVAILABLE == static_cast<int>(StatusCode::kUnavailable));
static_assert(EQ_INTERNAL == static_cast<int>(StatusCode::kInternal));
static_assert(sizeof(eq_frame_info) == 88, "the ABI is stable");
static_assert(EQ_DEFAULT_MAX_ELEMENTS == elastiquant::kDefaultMaxElements);

constexpr int32_t kMaxThreads = 1024;

// A fixed buffer, so that an error can be told when memory has run out.
thread_local char last_error[1024] = "";

// Cuts long texts short; the terminating zero always fits.
template <size_t N>
void CopyText(std::string_view text, char (&out)[N]) {
  const size_t size = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), size);
  std::memset(out + size, 0, N - size);
}

eq_status Fail(StatusCode code, std::string_view text) {
  CopyText(text, last_error);
  return static_cast<eq_status>(code);
}

// Runs `body`, a function that returns a Status; nothing that it throws gets past here.
template <typename Body>
eq_status Guarded(const Body& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? EQ_OK : Fail(status.code(), status.message());
  } catch (const std::bad_alloc&) {
    return Fail(StatusCode::kIo, "out of memory");
  } catch (const std::system_error& e) {
    return Fail(StatusCode::kIo, e.what());
  } catch (const std::exception& e) {
    return Fail(StatusCode::kInternal, e.what());
  } catch (...) {
    return Fail(StatusCode::kInternal, "an unknown exception");
  }
}

Status RefuseNull(const char* name) {
  return InvalidArgument(std::string(name) + " is a null pointer");
}

std::span<const uint8_t> FrameSpan(const void* frame, size_t bytes) {
  return {static_cast<const uint8_t*>(frame), bytes};
}

// What both forms of decoding check first.
Status CheckDecodePointers(const eq_workspace* work, const void* frame, const float* values,
                           size_t n) {
  if (work == nullptr) return RefuseNull("work");
  if (frame == nullptr) return RefuseNull("frame");
  if (values == nullptr && n > 0) return RefuseNull("values");
  return Status::Ok();
}

}  // namespace

const char* eq_version(void) { return ELASTIQUANT_VERSION; }

const char* eq_last_error(void) { return last_error; }

const char* eq_status_name(eq_status status) {
  // The names are string literals, so they end in a zero.
  return elastiquant::StatusCodeName(static_cast<StatusCode>(status)).data();
}

eq_status eq_codec_create(const char* spec, eq_codec** codec) {
  return Guarded([&]() -> Status {
    if (codec == nullptr) return RefuseNull("codec");
    *codec = nullptr;
    if (spec == nullptr) return RefuseNull("spec");
    EQ_ASSIGN_OR_RETURN(auto made, elastiquant::MakeCodec(spec));
    std::string canonical = made->spec();
    *codec = new eq_codec{std::move(made), std::move(canonical)};
    return Status::Ok();
  });
}

void eq_codec_destroy(eq_codec* codec) { delete codec; }

const char* eq_codec_spec(const eq_codec* codec) {
  return codec == nullptr ? nullptr : codec->spec.c_str();
}

eq_status eq_max_frame_bytes(const eq_codec* codec, size_t n, size_t* bytes) {
  return Guarded([&]() -> Status {
    if (codec == nullptr) return RefuseNull("codec");
    if (bytes == nullptr) return RefuseNull("bytes");
    EQ_RETURN_IF_ERROR(elastiquant::CheckEncodeSizes(n, 0, 0));
    *bytes = codec->codec->MaxFrameBytes(n);
    return Status::Ok();
  });
}

eq_status eq_workspace_create(int32_t threads, eq_workspace** work) {
  return Guarded([&]() -> Status {
    if (work == nullptr) return RefuseNull("work");
    *work = nullptr;
    if (threads < 1 || threads > kMaxThreads) {
      return InvalidArgument("threads is " + std::to_string(threads) + ", not 1 to " +
                             std::to_string(kMaxThreads));
    }
    *work = new eq_workspace{elastiquant::Workspace(threads)};
    return Status::Ok();
  });
}

void eq_workspace_destroy(eq_workspace* work) { delete work; }

eq_status eq_encode(const eq_codec* codec, eq_workspace* work, const float* values, size_t n,
                    uint64_t seed, uint64_t step, uint64_t worker, uint64_t message,
                    void* frame, size_t capacity, size_t* size) {
  return Guarded([&]() -> Status {
    if (codec == nullptr) return RefuseNull("codec");
    if (work == nullptr) return RefuseNull("work");
    if (values == nullptr && n > 0) return RefuseNull("values");
    if (frame == nullptr) return RefuseNull("frame");
    if (size == nullptr) return RefuseNull("size");
    // Before a span of n floats is made: n may be nonsense.
    EQ_RETURN_IF_ERROR(elastiquant::CheckEncodeSizes(n, 0, 0));
    EQ_RETURN_IF_ERROR(
        elastiquant::CheckRemembersNothing(*codec->codec, "use eq_stream_encode"));
    EQ_ASSIGN_OR_RETURN(
        *size,
        codec->codec->Encode({values, n}, elastiquant::DeriveKey(seed, step, worker, message),
                             work->work, {static_cast<uint8_t*>(frame), capacity}));
    return Status::Ok();
  });
}

eq_status eq_stream_create(const eq_codec* codec, size_t n, eq_stream** stream) {
  return Guarded([&]() -> Status {
    if (stream == nullptr) return RefuseNull("stream");
    *stream = nullptr;
    if (codec == nullptr) return RefuseNull("codec");
    EQ_RETURN_IF_ERROR(elastiquant::CheckEncodeSizes(n, 0, 0));
    *stream = new eq_stream{elastiquant::CodecStream(codec->codec, n)};
    return Status::Ok();
  });
}

void eq_stream_destroy(eq_stream* stream) { delete stream; }

eq_status eq_stream_encode(eq_stream* stream, eq_workspace* work, const float* values, size_t n,
                           uint64_t seed, uint64_t step, uint64_t worker, uint64_t message,
                           void* frame, size_t capacity, size_t* size) {
  return Guarded([&]() -> Status {
    if (stream == nullptr) return RefuseNull("stream");
    if (work == nullptr) return RefuseNull("work");
    if (values == nullptr && n > 0) return RefuseNull("values");
    if (frame == nullptr) return RefuseNull("frame");
    if (size == nullptr) return RefuseNull("size");
    EQ_RETURN_IF_ERROR(elastiquant::CheckEncodeSizes(n, 0, 0));
    EQ_ASSIGN_OR_RETURN(
        *size,
        stream->stream.Encode({values, n}, elastiquant::DeriveKey(seed, step, worker, message),
                              work->work, {static_cast<uint8_t*>(frame), capacity}));
    stream->stream.Commit();
    return Status::Ok();
  });
}

eq_status eq_stream_state_bytes(const eq_stream* stream, size_t* bytes) {
  return Guarded([&]() -> Status {
    if (stream == nullptr) return RefuseNull("stream");
    if (bytes == nullptr) return RefuseNull("bytes");
    *bytes = stream->stream.StateBytes();
    return Status::Ok();
  });
}

eq_status eq_stream_save(const eq_stream* stream, void* state, size_t capacity, size_t* size) {
  return Guarded([&]() -> Status {
    if (stream == nullptr) return RefuseNull("stream");
    if (state == nullptr) return RefuseNull("state");
    if (size == nullptr) return RefuseNull("size");
    EQ_ASSIGN_OR_RETURN(*size, stream->stream.Save({static_cast<uint8_t*>(state), capacity}));
    return Status::Ok();
  });
}

eq_status eq_stream_load(eq_stream* stream, const void* state, size_t bytes) {
  return Guarded([&]() -> Status {
    if (stream == nullptr) return RefuseNull("stream");
    if (state == nullptr) return RefuseNull("state");
    return stream->stream.Load({static_cast<const uint8_t*>(state), bytes});
  });
}

eq_status eq_inspect(const void* frame, size_t bytes, eq_frame_info* info) {
  return eq_inspect_limited(frame, bytes, elastiquant::kMaxFrameElements, info);
}

eq_status eq_inspect_limited(const void* frame, size_t bytes, uint64_t max_elements,
                             eq_frame_info* info) {
  return Guarded([&]() -> Status {
    if (frame == nullptr) return RefuseNull("frame");
    if (info == nullptr) return RefuseNull("info");
    EQ_ASSIGN_OR_RETURN(const auto summary,
                        elastiquant::InspectFrame(FrameSpan(frame, bytes), max_elements));
    *info = eq_frame_info{};
    CopyText(summary.codec, info->codec);
    info->elements = summary.elements;
    info->bytes = summary.bytes;
    info->stream_key = summary.key.value;
    return Status::Ok();
  });
}

eq_status eq_decode(eq_workspace* work, const void* frame, size_t bytes, float* values,
                    size_t n) {
  return Guarded([&]() -> Status {
    EQ_RETURN_IF_ERROR(CheckDecodePointers(work, frame, values, n));
    return elastiquant::DecodeFrame(FrameSpan(frame, bytes), work->work, {values, n});
  });
}

eq_status eq_decode_add(eq_workspace* work, const void* frame, size_t bytes, float weight,
                        float* values, size_t n) {
  return Guarded([&]() -> Status {
    EQ_RETURN_IF_ERROR(CheckDecodePointers(work, frame, values, n));
    return elastiquant::DecodeAddFrame(FrameSpan(frame, bytes), weight, work->work,
                                       {values, n});
  });
}
