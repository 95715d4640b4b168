#include "elastiquant/protocol/gossip/message.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/crc32c.h"

namespace elastiquant {
namespace {

constexpr uint16_t kMagic = 0x4745;  // "EG"
constexpr uint8_t kVersion = 1;
constexpr size_t kFixed = 32;
constexpr size_t kEach = 8;  // of a stream
constexpr size_t kMostStreams = 2;

Status Bad(const char* what) { return CorruptData(std::string("a gossip message ") + what); }

}  // namespace

Status BadGossipMessage(int from, const std::string& what) {
  return CorruptData("the message of worker " + std::to_string(from) + " " + what);
}

Status CheckGossipFrame(size_t bytes) {
  if (bytes <= UINT32_MAX) return {};
  return InvalidArgument("the model takes " + std::to_string(bytes) +
                         " bytes in a gossip message, which has less than 4 GiB for it: take a "
                         "codec that sends fewer bits of a value, such as dither:bits=4");
}

size_t GossipHeaderBytes(size_t streams) { return kFixed + kEach * streams; }

void WriteGossipMessage(const GossipMessage& message, std::vector<uint8_t>* bytes) {
  const size_t header = GossipHeaderBytes(message.streams.size());
  size_t size = header;
  for (const GossipMessage::Stream& stream : message.streams) size += stream.frame.size();
  bytes->resize(size);
  ByteWriter writer(*bytes);
  writer.Write(kMagic);
  writer.Write(kVersion);
  writer.Write(static_cast<uint8_t>(message.kind));
  writer.Write(uint32_t{0});  // the checksum, below
  writer.Write(static_cast<uint8_t>(message.part));
  writer.Write(static_cast<uint8_t>(message.streams.size()));
  writer.Write(uint16_t{0});
  writer.Write(uint32_t{0});
  writer.Write(message.round);
  writer.Write(message.weight);
  for (const GossipMessage::Stream& stream : message.streams) {
    writer.Write(stream.scale);
    writer.Write(static_cast<uint32_t>(stream.frame.size()));
  }
  for (const GossipMessage::Stream& stream : message.streams) writer.WriteSpan(stream.frame);
  const uint32_t checksum = Crc32c(std::span(*bytes).subspan(8, header - 8));
  ByteWriter(std::span(*bytes).subspan(4, 4)).Write(checksum);
}

Result<GossipMessage> ReadGossipMessage(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  uint16_t magic = 0, unused = 0;
  uint8_t version = 0, kind = 0, part = 0, count = 0;
  uint32_t checksum = 0, more = 0;
  GossipMessage message;
  reader.Read(&magic);
  reader.Read(&version);
  reader.Read(&kind);
  reader.Read(&checksum);
  reader.Read(&part);
  reader.Read(&count);
  reader.Read(&unused);
  reader.Read(&more);
  reader.Read(&message.round);
  if (!reader.Read(&message.weight)) return Bad("is too short");
  if (magic != kMagic || version != kVersion) return Bad("is none");
  if (count > kMostStreams || bytes.size() < GossipHeaderBytes(count)) {
    return Bad("is too short");
  }
  if (checksum != Crc32c(bytes.subspan(8, GossipHeaderBytes(count) - 8))) {
    return Bad("has a header whose checksum does not match");
  }
  if (kind > static_cast<uint8_t>(GossipKind::kAdPsgd) ||
      part > static_cast<uint8_t>(GossipPart::kPause) || unused != 0 || more != 0) {
    return Bad("is of an unknown kind");
  }
  if (!(message.weight > 0) || !std::isfinite(message.weight)) {
    return Bad("has a weight that is not above 0");
  }
  message.kind = static_cast<GossipKind>(kind);
  message.part = static_cast<GossipPart>(part);
  std::vector<uint32_t> sizes(count);
  message.streams.resize(count);
  for (size_t s = 0; s < count; ++s) {
    reader.Read(&message.streams[s].scale);
    reader.Read(&sizes[s]);
    if (!(message.streams[s].scale >= 0 && message.streams[s].scale <= 1)) {
      return Bad("has a scale that is not in [0, 1]");
    }
  }
  for (size_t s = 0; s < count; ++s) {
    if (!reader.ReadSpan(sizes[s], &message.streams[s].frame)) return Bad("is too short");
  }
  if (reader.remaining() > 0) return Bad("has more bytes than its frames");
  return message;
}

}  // namespace elastiquant
