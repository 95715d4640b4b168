#include "elastiquant/stream/codec_stream.h"

#include <algorithm>
#include <cstring>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/crc32c.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

// A state: magic, checksum of all that follows it, values of a message, messages so far, length
// of the spec, spec, and the fields, `elements` floats each.
constexpr uint32_t kMagic = 0x31535145;  // "EQS1"
constexpr size_t kChecked = 8;           // where what the checksum covers begins
constexpr size_t kFixed = kChecked + 8 + 8 + 4;

Status Bad(const std::string& what) {
  return CorruptData("stream state check failed: " + what);
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

Status CheckRemembersNothing(const Codec& codec, std::string_view instead) {
  const std::vector<std::string> names = codec.StateFields();
  if (names.empty()) return Status::Ok();
  return InvalidArgument("codec '" + codec.spec() + "' remembers (" + Joined(names) +
                         ") from one message of a stream to the next, which is lost if a "
                         "message is encoded by itself: " +
                         std::string(instead));
}

CodecStream::CodecStream(std::shared_ptr<const Codec> codec, size_t elements)
    : codec_(std::move(codec)),
      elements_(elements),
      names_(codec_->StateFields()),
      fields_(names_.size(), std::vector<float>(elements)),
      pending_(fields_) {}

Status CodecStream::SetCodec(std::shared_ptr<const Codec> codec) {
  if (codec->StateFields() != names_) {
    return InvalidArgument("codec '" + codec->spec() + "' remembers (" +
                           Joined(codec->StateFields()) + ") where '" + codec_->spec() +
                           "' remembers (" + Joined(names_) + ")");
  }
  codec_ = std::move(codec);
  return {};
}

Result<size_t> CodecStream::Encode(std::span<const float> values, StreamKey key,
                                   Workspace& work, std::span<uint8_t> frame) {
  if (values.size() != elements_) {
    return InvalidArgument("the messages of this stream have " + std::to_string(elements_) +
                           " values, not " + std::to_string(values.size()));
  }
  return EncodePart(*codec_, 0, values, key, work, frame);
}

Result<size_t> CodecStream::EncodePart(const Codec& codec, size_t begin,
                                       std::span<const float> values, StreamKey key,
                                       Workspace& work, std::span<uint8_t> frame) {
  const Part part = PartOf(begin, values.size());
  return codec.EncodeNext(values, key, work, frame, part.before(), part.after());
}

CodecStream::Part CodecStream::PartOf(size_t begin, size_t size) {
  Part part;
  part.fields = names_.size();
  for (size_t f = 0; f < part.fields; ++f) {
    part.before_fields[f] = std::span(fields_[f]).subspan(begin, size);
    part.after_fields[f] = std::span(pending_[f]).subspan(begin, size);
  }
  return part;
}

void CodecStream::Commit() {
  fields_.swap(pending_);
  ++messages_;
}

std::vector<std::span<float>> CodecStream::mutable_fields() {
  return {fields_.begin(), fields_.end()};
}

Status CodecStream::Restore(StateIn fields, uint64_t messages) {
  if (fields.size() != names_.size()) {
    return InvalidArgument("codec '" + codec_->spec() + "' remembers " +
                           std::to_string(names_.size()) + " fields, not " +
                           std::to_string(fields.size()));
  }
  for (size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].size() != elements_) {
      return InvalidArgument("'" + names_[f] + "' has " + std::to_string(fields[f].size()) +
                             " values, the messages of this stream " +
                             std::to_string(elements_));
    }
    if (!AllFinite(fields[f])) {
      return InvalidArgument("'" + names_[f] + "' has a value that is NaN or infinite");
    }
  }
  for (size_t f = 0; f < fields.size(); ++f) std::ranges::copy(fields[f], fields_[f].begin());
  messages_ = messages;
  return Status::Ok();
}

size_t CodecStream::StateBytes() const {
  return kFixed + codec_->spec().size() + names_.size() * elements_ * sizeof(float);
}

Result<size_t> CodecStream::Save(std::span<uint8_t> bytes) const {
  const std::string spec = codec_->spec();
  const size_t size = StateBytes();
  if (bytes.size() < size) {
    return BufferTooSmall("the state of this stream needs room for " + std::to_string(size) +
                          " bytes, not " + std::to_string(bytes.size()));
  }
  ByteWriter writer(bytes.first(size));
  writer.Write(kMagic);
  writer.Write(uint32_t{0});
  writer.Write(static_cast<uint64_t>(elements_));
  writer.Write(messages_);
  writer.Write(static_cast<uint32_t>(spec.size()));
  writer.WriteSpan({reinterpret_cast<const uint8_t*>(spec.data()), spec.size()});
  for (const std::vector<float>& field : fields_) {
    writer.WriteSpan({reinterpret_cast<const uint8_t*>(field.data()), 4 * field.size()});
  }
  const uint32_t checksum = Crc32c(bytes.first(size).subspan(kChecked));
  std::memcpy(bytes.data() + sizeof(kMagic), &checksum, sizeof(checksum));
  return size;
}

Status CodecStream::Load(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  uint32_t magic = 0, checksum = 0, spec_bytes = 0;
  uint64_t elements = 0, messages = 0;
  reader.Read(&magic);
  reader.Read(&checksum);
  if (magic != kMagic) return Bad("it does not begin with \"EQS1\"");
  if (Crc32c(bytes.subspan(std::min(kChecked, bytes.size()))) != checksum) {
    return Bad("its checksum is wrong: it is damaged, or cut short");
  }
  std::span<const uint8_t> spec;
  reader.Read(&elements);
  reader.Read(&messages);
  reader.Read(&spec_bytes);
  if (!reader.ReadSpan(spec_bytes, &spec)) return Bad("it ends within its front");
  const std::string_view theirs(reinterpret_cast<const char*>(spec.data()), spec.size());
  if (theirs != codec_->spec()) {
    return InvalidArgument("the state is that of codec '" + std::string(theirs) +
                           "', the stream one of '" + codec_->spec() + "'");
  }
  if (elements != elements_) {
    return InvalidArgument("the state is that of messages of " + std::to_string(elements) +
                           " values, the stream has " + std::to_string(elements_));
  }
  const size_t expected = names_.size() * elements_ * sizeof(float);
  if (reader.remaining() != expected) {
    return Bad("it has " + std::to_string(reader.remaining()) + " bytes of values, not " +
               std::to_string(expected));
  }
  std::vector<std::vector<float>> fields(names_.size(), std::vector<float>(elements_));
  for (std::vector<float>& field : fields) {
    std::span<const uint8_t> from;
    reader.ReadSpan(elements_ * sizeof(float), &from);
    if (!from.empty()) std::memcpy(field.data(), from.data(), from.size());
  }
  const Status restored =
      Restore(std::vector<std::span<const float>>(fields.begin(), fields.end()), messages);
  return restored.ok() ? restored : Bad(restored.message());
}

}  // namespace elastiquant
