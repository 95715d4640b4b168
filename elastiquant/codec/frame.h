// The frame: the only thing on any wire. docs/frame-format.md specifies it byte by byte.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"

namespace elastiquant {

inline constexpr uint32_t kFrameMagic = 0x31465145;  // "EQF1"
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr size_t kMaxFrameElements = (size_t{1} << 32) - 1;

// Stable numbers: they travel in frames. 255 is taken by collective/skip_notice.h.
enum class CodecId : uint8_t { kFp32 = 1, kFp16 = 2, kBf16 = 3, kElastic = 4 };

// A frame taken apart; the spans point into it.
struct FrameView {
  CodecId codec{};
  uint8_t flags = 0;  // the codec's own
  size_t elements = 0;
  StreamKey key;
  std::span<const uint8_t> parameters;  // <= 255 bytes, laid out by the codec
  std::span<const uint8_t> payload;
};

// Checks magic, version, lengths and checksum (each failure names the check). The codec id is
// not checked here, nor anything inside parameters and payload.
Result<FrameView> ParseFrame(std::span<const uint8_t> frame);

// Where the payload of a frame with `parameter_bytes` of parameters begins.
constexpr size_t FramePayloadOffset(size_t parameter_bytes) {
  return kFrameHeaderBytes + parameter_bytes;
}

// What every Encode checks first: elements <= kMaxFrameElements (else kInvalidArgument) and
// frame_bytes >= max_frame_bytes (else kBufferTooSmall, with the size needed).
Status CheckEncodeSizes(size_t elements, size_t max_frame_bytes, size_t frame_bytes);

// Finishes a frame whose payload the caller has already written at FramePayloadOffset(...):
// writes header, parameters and checksum around it and returns the frame's total size.
// view.payload gives only the payload's size here.
size_t SealFrame(const FrameView& view, std::span<uint8_t> frame);

}  // namespace elastiquant
