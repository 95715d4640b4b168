// The frame, in which all that is compressed travels. docs/frame-format.md specifies it byte by
// byte.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"

namespace elastiquant {

inline constexpr uint32_t kFrameMagic = 0x31465145;  // "EQF1"
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr size_t kMaxFrameElements = (size_t{1} << 32) - 1;

// What lies in a frame. Several codecs may share one wire format. The numbers travel in frames,
// and so must never change. 255 is taken by collective/skip_notice.h.
enum class CodecId : uint8_t {
  kFp32 = 1,
  kFp16 = 2,
  kBf16 = 3,
  kElastic = 4,      // norms, and indices into one set of levels
  kDither = 5,       // one step, scale classes, indices under a parametric model
  kLevels = 6,       // a list of signed levels a bucket, base-s digits
  kTernary = 7,      // one scale, and -1, 0 or 1
  kSign = 8,         // a scale a bucket, and signs
  kNatural = 9,      // signs and exponents
  kZeroless = 10,    // norms, and indices into signed levels without zero
  kInnovation = 11,  // a range, and indices of a uniform grid over it
  kEden = 12,        // a scale, and centroid indices of the rotated vector
  kSparse = 13,      // positions and values
  kLowRank = 14,     // factors of matrices
  kRotated = 15,     // another codec's frame of the rotated vector
  kChunks = 16,      // positions and values of what chunks keep
};

// The parts of a frame. The spans point into it.
struct FrameView {
  CodecId codec{};
  uint8_t flags = 0;  // their meaning is up to the codec
  size_t elements = 0;
  StreamKey key;
  std::span<const uint8_t> parameters;  // at most 255 bytes, laid out by the codec
  std::span<const uint8_t> payload;
};

// Takes a frame apart after checking its magic, version, lengths and checksum; an error names
// the check that failed. Neither the codec id is checked here, nor anything inside the
// parameters and the payload.
Result<FrameView> ParseFrame(std::span<const uint8_t> frame);

// Returns where the payload of a frame with `parameter_bytes` of parameters begins.
constexpr size_t FramePayloadOffset(size_t parameter_bytes) {
  return kFrameHeaderBytes + parameter_bytes;
}

// Return the error, of kCorruptData, for a frame whose parameters or payload cannot be right.
// `what` says in a few words what is wrong with them.
Status BadParameters(std::string_view what);
Status BadPayload(std::string_view what);

// Checks what every Encode must check first. Fails with kInvalidArgument unless elements <=
// kMaxFrameElements, and with kBufferTooSmall, giving the size that is needed, unless
// frame_bytes >= max_frame_bytes.
Status CheckEncodeSizes(size_t elements, size_t max_frame_bytes, size_t frame_bytes);

// Finishes a frame whose payload the caller has already written at FramePayloadOffset(...): it
// writes header, parameters and checksum around it, and returns the size of the whole frame. Of
// view.payload only the size is used.
size_t SealFrame(const FrameView& view, std::span<uint8_t> frame);

}  // namespace elastiquant
