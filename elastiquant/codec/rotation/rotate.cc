// `codec|rotate`: a frame of the rotated vector inside a frame.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "elastiquant/codec/codec_decorator.h"
#include "elastiquant/codec/rotation/rotation.h"
#include "elastiquant/codec/spec.h"

namespace elastiquant {
namespace {

constexpr size_t kRotateParameterBytes = 2;  // log4 of the block, rounds
constexpr int kLeastLog4Block = 3, kMostLog4Block = 10;

// Random numbers of the codec inside have nothing to do with the signs.
StreamKey InnerKey(StreamKey key) { return {Mix64(key.value)}; }

std::span<float> Floats(std::span<uint8_t> bytes, size_t n) {
  return {reinterpret_cast<float*>(bytes.data()), n};
}

class RotatedCodec : public CodecDecorator {
 public:
  RotatedCodec(std::shared_ptr<const Codec> inner, int log4_block, int rounds)
      : CodecDecorator(std::move(inner)), log4_block_(log4_block), rounds_(rounds) {}

  std::string spec() const override {
    return inner().spec() + "|rotate:block=" + std::to_string(1 << 2 * log4_block_) +
           ",rounds=" + std::to_string(rounds_);
  }
  // A rotation changes neither norms nor means of the whole, from which the class and the bound
  // follow. Parts of it mix.
  size_t granule() const override { return 0; }
  // What is sparse inside is not once it is rotated back, and workers rotate in their own ways.
  Exchange exchange() const override {
    const Exchange exchange = inner().exchange();
    if (exchange == Exchange::kIntegerSum) return Exchange::kTwoPhase;
    return exchange == Exchange::kSparse ? Exchange::kAllGather : exchange;
  }
  size_t MaxFrameBytes(size_t n) const override {
    return FramePayloadOffset(kRotateParameterBytes) + inner().MaxFrameBytes(n);
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    EQ_RETURN_IF_ERROR(
        CheckEncodeSizes(values.size(), MaxFrameBytes(values.size()), frame.size()));
    EQ_RETURN_IF_ERROR(CheckRotatable(values, values.size()));
    const std::span<float> rotated = Floats(
        work.SharedScratch(Workspace::kModifierSlot, values.size_bytes()), values.size());
    Rotate({key, log4_block_, rounds_}, values, work, rotated);
    const std::span<uint8_t> payload = frame.subspan(FramePayloadOffset(kRotateParameterBytes));
    EQ_ASSIGN_OR_RETURN(const size_t size,
                        inner().Encode(rotated, InnerKey(key), work, payload));
    const std::array<uint8_t, kRotateParameterBytes> parameters{
        static_cast<uint8_t>(log4_block_), static_cast<uint8_t>(rounds_)};
    FrameView view;
    view.codec = CodecId::kRotated;
    view.elements = values.size();
    view.key = key;
    view.parameters = parameters;
    view.payload = payload.first(size);
    return SealFrame(view, frame);
  }

 private:
  const int log4_block_, rounds_;
};

Status DecodeRotated(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  if (frame.flags != 0 || frame.parameters.size() != kRotateParameterBytes) {
    return BadParameters("a rotated frame has two bytes and no flags");
  }
  const int log4_block = frame.parameters[0], rounds = frame.parameters[1];
  if (log4_block < kLeastLog4Block || log4_block > kMostLog4Block || rounds < 1 || rounds > 2) {
    return BadParameters("block or rounds are not valid");
  }
  const auto inner = ParseFrame(frame.payload);
  if (!inner.ok()) return BadPayload("inside it, " + inner.status().message());
  if (inner->codec == CodecId::kRotated || inner->elements != frame.elements) {
    return BadPayload("the frame inside is rotated or has another length");
  }
  const std::span<float> rotated = Floats(
      work.SharedScratch(Workspace::kModifierSlot, sink.size() * sizeof(float)), sink.size());
  const Status decoded = DecodeFrame(frame.payload, work, rotated);
  if (!decoded.ok()) return BadPayload("inside it, " + decoded.message());
  if (!RotateBack({frame.key, log4_block, rounds}, rotated, sink, work)) {
    return BadPayload("a value is infinite");
  }
  return Status::Ok();
}

Result<std::shared_ptr<const Codec>> WrapRotate(std::shared_ptr<const Codec> inner,
                                                const SpecPart& part) {
  if (inner->codec_class() == CodecClass::kLossless) {
    return InvalidArgument("codec '" + inner->spec() +
                           "' loses nothing: leave the modifier 'rotate' out");
  }
  if (!inner->StateFields().empty()) {
    return InvalidArgument("codec '" + inner->spec() +
                           "' has a memory, but each message is rotated in another way: give "
                           "|rotate before |ef or |dgc");
  }
  // Such levels are fitted to gradients as they are before the rotation.
  EQ_ASSIGN_OR_RETURN(const Spec of_inner, ParseSpec(inner->spec()));
  if (HasAdaptedLevels(of_inner.codec)) {
    return InvalidArgument("codec '" + inner->spec() +
                           "' fits its levels to gradients, and any rotated message looks like "
                           "Gaussian noise: give a codec of fixed levels, such as "
                           "qsgdv:bits=4|rotate");
  }
  const std::string_view block = SpecValue(part, "block", "4096");
  int log4_block = 0;
  for (int k = kLeastLog4Block; k <= kMostLog4Block; ++k) {
    if (block == std::to_string(1 << 2 * k)) log4_block = k;
  }
  if (log4_block == 0) {
    return BadValueOf("modifier 'rotate'", "block", block,
                      "64, 256, 1024, 4096, 16384, 65536, 262144 or 1048576");
  }
  const std::string_view rounds = SpecValue(part, "rounds", "1");
  if (rounds != "1" && rounds != "2") {
    return BadValueOf("modifier 'rotate'", "rounds", rounds, "1 or 2");
  }
  return {std::make_shared<RotatedCodec>(std::move(inner), log4_block, rounds[0] - '0')};
}

}  // namespace

const CodecModifier& RotateModifier() {
  static const CodecModifier modifier{
      "rotate",
      "randomised Hadamard transform: coordinates of a block become alike",
      {{"block", "4096", "a power of four from 64 to 1048576"},
       {"rounds", "1", "1 or 2; two for input with few large values"}},
      WrapRotate,
      {"dither:bits=3|rotate", "qsgdv:bits=4|rotate:block=64,rounds=2",
       "efsign|rotate:block=1024"},
      CodecId::kRotated,
      DecodeRotated};
  return modifier;
}

}  // namespace elastiquant
