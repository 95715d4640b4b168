#include "elastiquant/codec/frame.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <string>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/crc32c.h"

namespace elastiquant {
namespace {

constexpr size_t kChecksumOffset = 12;

// The checksum of a frame with its own field taken as zero.
uint32_t FrameChecksum(std::span<const uint8_t> frame) {
  constexpr std::array<uint8_t, 4> kZero{};
  uint32_t crc = Crc32c(frame.first(kChecksumOffset));
  crc = Crc32c(kZero, crc);
  return Crc32c(frame.subspan(kChecksumOffset + kZero.size()), crc);
}

std::string Bytes(uint64_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

}  // namespace

Status BadParameters(std::string_view what) {
  return CorruptData("frame parameter check failed: " + std::string(what));
}

Status BadPayload(std::string_view what) {
  return CorruptData("frame payload check failed: " + std::string(what));
}

Result<FrameView> ParseFrame(std::span<const uint8_t> frame) {
  if (frame.size() < kFrameHeaderBytes) {
    return CorruptData("frame header check failed: " + Bytes(frame.size()) +
                       " where a header has " + std::to_string(kFrameHeaderBytes) +
                       "; the frame is truncated");
  }
  ByteReader reader(frame);
  uint32_t magic = 0, elements = 0, checksum = 0;
  uint8_t version = 0, codec = 0, flags = 0, parameter_bytes = 0;
  uint64_t key = 0, payload_bytes = 0;
  reader.Read(&magic);
  reader.Read(&version);
  reader.Read(&codec);
  reader.Read(&flags);
  reader.Read(&parameter_bytes);
  reader.Read(&elements);
  reader.Read(&checksum);
  reader.Read(&key);
  reader.Read(&payload_bytes);

  if (magic != kFrameMagic) {
    return CorruptData("frame magic check failed: the data does not begin with \"EQF1\"");
  }
  if (version != kFrameVersion) {
    return Unsupported("frame version check failed: the frame has version " +
                       std::to_string(version) + ", this build reads version " +
                       std::to_string(kFrameVersion));
  }
  const uint64_t body = frame.size() - kFrameHeaderBytes;
  if (parameter_bytes > body || payload_bytes != body - parameter_bytes) {
    return CorruptData("frame length check failed: the header tells of " +
                       std::to_string(parameter_bytes) + " + " + Bytes(payload_bytes) +
                       " of parameters and payload, but " + Bytes(body) + " follow it");
  }
  if (checksum != FrameChecksum(frame)) {
    return CorruptData("frame checksum check failed: the frame was damaged on its way");
  }

  FrameView view{static_cast<CodecId>(codec), flags, elements, StreamKey{key}, {}, {}};
  reader.ReadSpan(parameter_bytes, &view.parameters);
  reader.ReadSpan(reader.remaining(), &view.payload);
  return view;
}

Status CheckEncodeSizes(size_t elements, size_t max_frame_bytes, size_t frame_bytes) {
  if (elements > kMaxFrameElements) {
    return InvalidArgument("a frame holds at most 2^32 - 1 values, not " +
                           std::to_string(elements) + "; cut the vector up");
  }
  if (frame_bytes < max_frame_bytes) {
    return BufferTooSmall("a frame of " + std::to_string(elements) + " values needs room for " +
                          Bytes(max_frame_bytes) + ", not " + std::to_string(frame_bytes));
  }
  return Status::Ok();
}

size_t SealFrame(const FrameView& view, std::span<uint8_t> frame) {
  const size_t total = FramePayloadOffset(view.parameters.size()) + view.payload.size();
  assert(view.parameters.size() <= 255 && view.elements <= kMaxFrameElements);
  assert(frame.size() >= total);
  frame = frame.first(total);
  ByteWriter writer(frame);
  writer.Write(kFrameMagic);
  writer.Write(kFrameVersion);
  writer.Write(static_cast<uint8_t>(view.codec));
  writer.Write(view.flags);
  writer.Write(static_cast<uint8_t>(view.parameters.size()));
  writer.Write(static_cast<uint32_t>(view.elements));
  writer.Write(uint32_t{0});
  writer.Write(view.key.value);
  writer.Write(static_cast<uint64_t>(view.payload.size()));
  writer.WriteSpan(view.parameters);
  const uint32_t checksum = FrameChecksum(frame);
  std::memcpy(frame.data() + kChecksumOffset, &checksum, sizeof(checksum));
  return total;
}

}  // namespace elastiquant
