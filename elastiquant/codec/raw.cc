// fp32, fp16 and bf16: a frame's payload is the values in order, with no parameters.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "elastiquant/codec/registry.h"
#include "elastiquant/kernels/convert.h"

namespace elastiquant {
namespace {

// Values that one thread converts at a time.
constexpr size_t kConvertedAtOnce = size_t{1} << 16;

using PackFunction = size_t (*)(const float* in, size_t n, LaneKeys keys, uint32_t first,
                                uint8_t* out);
struct RawFormat {
  CodecId id;
  size_t width;  // bytes a value
  bool (*unpack)(const uint8_t* in, size_t n, float* out);
  bool (*unpack_add)(const uint8_t* in, size_t n, float weight, float* out);
};
constexpr RawFormat kFp32{CodecId::kFp32, 4, UnpackFp32, UnpackAddFp32};
constexpr RawFormat kFp16{CodecId::kFp16, 2, UnpackFp16, UnpackAddFp16};
constexpr RawFormat kBf16{CodecId::kBf16, 2, UnpackBf16, UnpackAddBf16};

// Calls fn(first, count) for each block of [0, n). std::ref keeps std::function off the heap.
template <typename Fn>
void ForEachBlock(size_t n, Workspace& work, const Fn& fn) {
  const auto block = [&](size_t item, int) {
    const size_t first = item * kConvertedAtOnce;
    fn(first, std::min(kConvertedAtOnce, n - first));
  };
  work.ParallelFor((n + kConvertedAtOnce - 1) / kConvertedAtOnce, std::cref(block));
}

Status CannotHold(float value, size_t coordinate) {
  const std::string where =
      std::to_string(value) + " at coordinate " + std::to_string(coordinate);
  if (!std::isfinite(value)) return NonFinite("the value is " + where);
  return OutOfRange("the value " + where +
                    " exceeds the largest bfloat16; use rounding=nearest, which saturates");
}

class RawCodec : public Codec {
 public:
  RawCodec(const RawFormat& format, std::string spec, CodecClass codec_class, PackFunction pack,
           std::optional<double> nmse_bound)
      : format_(format),
        spec_(std::move(spec)),
        class_(codec_class),
        pack_(pack),
        nmse_bound_(nmse_bound) {}

  std::string spec() const override { return spec_; }
  CodecClass codec_class() const override { return class_; }
  std::optional<double> NmseBound(size_t) const override { return nmse_bound_; }
  size_t granule() const override { return 1; }
  size_t MaxFrameBytes(size_t n) const override {
    return FramePayloadOffset(0) + n * format_.width;
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    const size_t n = values.size();
    EQ_RETURN_IF_ERROR(CheckEncodeSizes(n, MaxFrameBytes(n), frame.size()));
    const std::span<uint8_t> payload = frame.subspan(FramePayloadOffset(0), n * format_.width);
    const LaneKeys keys = MakeLaneKeys(key);
    std::atomic<size_t> bad{n};
    ForEachBlock(n, work, [&](size_t first, size_t count) {
      const size_t packed =
          pack_(values.data() + first, count, keys, static_cast<uint32_t>(first),
                payload.data() + first * format_.width);
      if (packed == count) return;
      size_t least = bad.load();
      while (first + packed < least && !bad.compare_exchange_weak(least, first + packed)) {
      }
    });
    if (bad < n) return CannotHold(values[bad], bad);
    FrameView view;
    view.codec = format_.id;
    view.elements = n;
    view.key = key;
    view.payload = payload;
    return SealFrame(view, frame);
  }

 private:
  const RawFormat& format_;
  std::string spec_;
  CodecClass class_;
  PackFunction pack_;
  std::optional<double> nmse_bound_;
};

Status DecodeRaw(const RawFormat& format, const FrameView& frame, const DecodeSink& sink,
                 Workspace& work) {
  if (frame.flags != 0 || !frame.parameters.empty()) {
    return BadParameters("this codec has no flags or parameters");
  }
  const size_t n = frame.elements;
  if (frame.payload.size() != n * format.width) {
    return BadPayload("" + std::to_string(n) + " values of " + std::to_string(format.width) +
                      " bytes do not make " + std::to_string(frame.payload.size()) + " bytes");
  }
  std::atomic<bool> finite{true};
  ForEachBlock(n, work, [&](size_t first, size_t count) {
    const uint8_t* in = frame.payload.data() + first * format.width;
    const auto unpack = [&](float* out) {
      return sink.how().add ? format.unpack_add(in, count, sink.how().weight, out)
                            : format.unpack(in, count, out);
    };
    if (!sink.PutChecked(first, unpack)) finite = false;
  });
  if (!finite) return BadPayload("a value is NaN or infinite");
  return Status::Ok();
}

using CodecResult = Result<std::shared_ptr<const Codec>>;

template <size_t (*Pack)(const float*, size_t, uint8_t*)>
size_t PackDeterministic(const float* in, size_t n, LaneKeys, uint32_t, uint8_t* out) {
  return Pack(in, n, out);
}

CodecResult MakeFp32(const Spec&) {
  return {std::make_shared<RawCodec>(kFp32, "fp32", CodecClass::kLossless,
                                     PackDeterministic<PackFp32>, 0.0)};
}
CodecResult MakeFp16(const Spec&) {
  return {std::make_shared<RawCodec>(kFp16, "fp16", CodecClass::kBiased,
                                     PackDeterministic<PackFp16>, std::nullopt)};
}
CodecResult MakeBf16(const Spec& spec) {
  const std::string_view rounding = SpecValue(spec.codec, "rounding", "nearest");
  if (rounding == "nearest") {
    return {std::make_shared<RawCodec>(kBf16, "bf16", CodecClass::kBiased,
                                       PackDeterministic<PackBf16>, std::nullopt)};
  }
  if (rounding == "stochastic") {
    // Steps are at most 2^-7 of a value, and rounding's variance a quarter of a step's square.
    return {std::make_shared<RawCodec>(kBf16, "bf16:rounding=stochastic", CodecClass::kUnbiased,
                                       PackBf16Stochastic, 0x1p-16)};
  }
  return InvalidArgument("codec 'bf16': rounding=" + std::string(rounding) +
                         " is not known; valid: nearest, stochastic");
}

template <const RawFormat& format>
Status DecodeAs(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  return DecodeRaw(format, frame, sink, work);
}

}  // namespace

const CodecFamily& Fp32Family() {
  static const CodecFamily family{
      kFp32.id,
      {"fp32", "fp32", CodecClass::kLossless, "the values as they are, 32 bits each", {}, {}},
      {"fp32"},
      MakeFp32,
      DecodeAs<kFp32>};
  return family;
}

const CodecFamily& Fp16Family() {
  static const CodecFamily family{kFp16.id,
                                  {"fp16",
                                   "fp16",
                                   CodecClass::kBiased,
                                   "IEEE 754 binary16, to nearest even, saturating at 65504",
                                   {},
                                   {}},
                                  {"fp16"},
                                  MakeFp16,
                                  DecodeAs<kFp16>};
  return family;
}

const CodecFamily& Bf16Family() {
  static const CodecFamily family{
      kBf16.id,
      {"bf16",
       "bf16",
       CodecClass::kBiased,
       "bfloat16: the range of fp32 with 8 significant bits",
       {{"rounding", "nearest", "nearest (to even), or stochastic (unbiased)"}},
       {}},
      {"bf16", "bf16:rounding=stochastic"},
      MakeBf16,
      DecodeAs<kBf16>};
  return family;
}

}  // namespace elastiquant
