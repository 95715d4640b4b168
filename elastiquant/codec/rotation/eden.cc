// EDEN: rotated blocks, Lloyd-Max centroids of a Gaussian, one scale a block.
#include "elastiquant/codec/rotation/eden.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/number.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/codec/rotation/rotation.h"
#include "elastiquant/kernels/convert.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/pack.h"

namespace elastiquant {
namespace {

constexpr size_t kEdenParameterBytes = 4;  // rate, reserved
constexpr size_t kMostBlock = 4096, kLeastBlock = 256;
constexpr int kLeastRate = 64, kMostRate = 1024;  // bits / 256

// One round of signs and transform leaves few large values on few levels, which the centroids
// are wrong for; two do not.
Rotation RotationOf(StreamKey key) { return {key, 6, 2}; }

// The coordinates of whole pieces are coded, the last few sent as they are.
size_t CodedSize(size_t n) { return n / kLeastBlock * kLeastBlock; }

// Calls fn(begin, size, offset of the piece in the payload, thread).
template <typename Fn>
void ForEachPiece(size_t n, int rate, Workspace& work, const Fn& fn) {
  const size_t coded = CodedSize(n);
  const Rotation rotation = RotationOf({});
  const auto run = [&](size_t block, int thread) {
    size_t offset = block * SplitEdenBlock(rate, kMostBlock).bytes();
    const size_t end = std::min(coded, (block + 1) * kMostBlock);
    for (size_t begin = block * kMostBlock; begin < end;) {
      const size_t size = RotatedPiece(rotation, begin, coded);
      fn(begin, size, offset, thread);
      offset += SplitEdenBlock(rate, size).bytes();
      begin += size;
    }
  };
  work.ParallelFor((coded + kMostBlock - 1) / kMostBlock, std::cref(run));
}

size_t CodedBytes(size_t n, int rate) {
  size_t left = CodedSize(n), bytes = 0;
  for (size_t size = kMostBlock; size >= kLeastBlock; left %= size, size /= 4) {
    bytes += left / size * SplitEdenBlock(rate, size).bytes();
  }
  return bytes;
}
size_t PayloadBytes(size_t n, int rate) {
  return CodedBytes(n, rate) + (n - CodedSize(n)) * sizeof(float);
}

std::span<float> SharedFloats(Workspace& work, size_t n) {
  return {reinterpret_cast<float*>(
              work.SharedScratch(Workspace::kCodecSlot, n * sizeof(float)).data()),
          n};
}

void WriteBlock(std::span<const float> block, double squares, const EdenSplit& split,
                uint8_t* codes, uint8_t* out) {
  const float scale = QuantizeEden(block, squares, split, codes);
  std::memcpy(out, &scale, sizeof(scale));
  out += sizeof(scale);
  if (split.upper > 0) {
    PackCodes(codes, split.upper, split.lower_bits + 1, out);
    out += PackedBytes(split.upper, split.lower_bits + 1);
  }
  if (split.lower_bits > 0 && split.lower > 0) {
    PackCodes(codes + split.upper, split.lower, split.lower_bits, out);
  }
}

// False if the scale is not one.
bool ReadBlock(const uint8_t* in, const EdenSplit& split, uint8_t* codes,
               std::span<float> block) {
  float scale;
  std::memcpy(&scale, in, sizeof(scale));
  in += sizeof(scale);
  if (!(scale >= 0) || !std::isfinite(scale)) return false;
  if (split.upper > 0) {
    UnpackCodes(in, split.upper, split.lower_bits + 1, codes);
    in += PackedBytes(split.upper, split.lower_bits + 1);
  }
  if (split.lower_bits > 0 && split.lower > 0) {
    UnpackCodes(in, split.lower, split.lower_bits, codes + split.upper);
  }
  DequantizeEden(codes, scale, split, block);
  return true;
}

class EdenCodec : public Codec {
 public:
  explicit EdenCodec(int rate) : rate_(rate) {}

  std::string spec() const override {
    return "eden:bits=" + NumberText(static_cast<float>(rate_) / 256);
  }
  // A small bias remains, as eden.h says. Users may treat the codec as unbiased all the same:
  // its errors average out over workers and steps until only that bias is left.
  CodecClass codec_class() const override { return CodecClass::kUnbiased; }
  std::optional<double> NmseBound(size_t) const override { return std::nullopt; }
  size_t MaxFrameBytes(size_t n) const override {
    return FramePayloadOffset(kEdenParameterBytes) + PayloadBytes(n, rate_);
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    const size_t n = values.size(), coded = CodedSize(n);
    EQ_RETURN_IF_ERROR(CheckEncodeSizes(n, MaxFrameBytes(n), frame.size()));
    EQ_RETURN_IF_ERROR(CheckRotatable(values, coded));
    const std::span<float> rotated = SharedFloats(work, coded);
    Rotate(RotationOf(key), values.first(coded), work, rotated);
    const std::span<uint8_t> payload =
        frame.subspan(FramePayloadOffset(kEdenParameterBytes), PayloadBytes(n, rate_));
    ForEachPiece(n, rate_, work, [&](size_t begin, size_t size, size_t offset, int thread) {
      WriteBlock(rotated.subspan(begin, size), SumSquares(values.data() + begin, size),
                 SplitEdenBlock(rate_, size), work.Scratch(thread, kMostBlock).data(),
                 payload.data() + offset);
    });
    if (coded < n) {
      std::memcpy(payload.data() + CodedBytes(n, rate_), values.data() + coded,
                  (n - coded) * sizeof(float));
    }
    std::array<uint8_t, kEdenParameterBytes> parameters;
    ByteWriter writer(parameters);
    writer.Write(static_cast<uint16_t>(rate_));
    writer.Write(uint16_t{0});
    FrameView view;
    view.codec = CodecId::kEden;
    view.elements = n;
    view.key = key;
    view.parameters = parameters;
    view.payload = payload;
    return SealFrame(view, frame);
  }

 private:
  const int rate_;
};

Status DecodeEden(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  if (frame.flags != 0 || frame.parameters.size() != kEdenParameterBytes) {
    return BadParameters("eden has four bytes and no flags");
  }
  ByteReader reader(frame.parameters);
  uint16_t rate = 0, reserved = 0;
  reader.Read(&rate);
  reader.Read(&reserved);
  if (rate < kLeastRate || rate > kMostRate || reserved != 0) {
    return BadParameters("the rate is not valid");
  }
  const size_t n = frame.elements, coded = CodedSize(n);
  if (frame.payload.size() != PayloadBytes(n, rate)) {
    return BadPayload("it has " + std::to_string(frame.payload.size()) + " bytes, not " +
                      std::to_string(PayloadBytes(n, rate)));
  }
  const std::span<float> rotated = SharedFloats(work, coded);
  std::atomic<bool> valid{true};
  ForEachPiece(n, rate, work, [&](size_t begin, size_t size, size_t offset, int thread) {
    if (!ReadBlock(frame.payload.data() + offset, SplitEdenBlock(rate, size),
                   work.Scratch(thread, kMostBlock).data(), rotated.subspan(begin, size))) {
      valid = false;
    }
  });
  if (!valid) return BadPayload("a scale is not valid");
  if (!RotateBack(RotationOf(frame.key), rotated, sink.First(coded), work)) {
    return BadPayload("a value is infinite");
  }
  const uint8_t* const rest = frame.payload.data() + CodedBytes(n, rate);
  const auto unpack = [&](float* out) {
    return sink.how().add ? UnpackAddFp32(rest, n - coded, sink.how().weight, out)
                          : UnpackFp32(rest, n - coded, out);
  };
  if (!sink.PutChecked(coded, unpack)) {
    return BadPayload("a value is not finite");
  }
  return Status::Ok();
}

Result<std::shared_ptr<const Codec>> MakeEden(const Spec& spec) {
  const std::string_view text = SpecValue(spec.codec, "bits", "4");
  float bits = 0;
  if (!ParseNumber(text, &bits) || !(bits >= 0.25f && bits <= 4)) {
    return InvalidArgument("codec 'eden': bits=" + std::string(text) +
                           " is not valid; use a number from 0.25 to 4");
  }
  return {std::make_shared<EdenCodec>(static_cast<int>(std::lround(256 * bits)))};
}

}  // namespace

const CodecFamily& EdenFamily() {
  static const CodecFamily family{
      CodecId::kEden,
      {"eden",
       "eden:bits=4",
       CodecClass::kUnbiased,
       "rotated blocks of 4096, Gaussian centroids, a scale a block; nearly unbiased",
       {{"bits", "4", "0.25 to 4: bits a coordinate, any number, in steps of 1/256"}},
       {}},
      {"eden:bits=4", "eden:bits=1", "eden:bits=2.5", "eden:bits=0.5"},
      MakeEden,
      DecodeEden};
  return family;
}

}  // namespace elastiquant
