// The stream of messages that one sender encodes for one receiver, or for all of them, of the
// same tensor again and again. It keeps what a codec remembers of each message for the next
// (Codec::StateFields), such as |ef, |dgc and powersgd.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// Fails with kInvalidArgument if the codec remembers anything, which encoding a message by
// itself would drop unseen. The error ends with `instead`, which says what to call for a
// stream.
Status CheckRemembersNothing(const Codec& codec, std::string_view instead);

// There are two versions of all that is remembered: encoding reads the one and writes the
// other, which is *pending* until Commit makes it what is remembered. A message that is encoded
// and not committed, because it was never sent or never applied, is forgotten when the next one
// is encoded.
//
// A stream must not be used by several threads at once, except that they may encode parts that
// do not overlap.
class CodecStream {
 public:
  static constexpr size_t kMaxFields = 4;  // the most that Codec::StateFields may name

  // Makes a stream whose messages all have `elements` values. It remembers nothing yet: all
  // fields are zeros. `codec` remembers at most kMaxFields vectors.
  CodecStream(std::shared_ptr<const Codec> codec, size_t elements);

  const Codec& codec() const { return *codec_; }
  size_t elements() const { return elements_; }
  uint64_t messages() const { return messages_; }  // committed so far

  // Makes the stream use another codec from the next message on. Fails with kInvalidArgument,
  // and changes nothing, unless it remembers the same fields.
  Status SetCodec(std::shared_ptr<const Codec> codec);

  // Calls Codec::EncodeNext; what it remembers is pending. Each message must be given another
  // key. Fails with kInvalidArgument if the number of values is not elements(), and where the
  // codec does.
  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame);
  // Does the same for a part of the message: its values from `begin` on. All parts must be
  // encoded before Commit. `codec` may be another than codec() if it remembers the same fields.
  Result<size_t> EncodePart(const Codec& codec, size_t begin, std::span<const float> values,
                            StreamKey key, Workspace& work, std::span<uint8_t> frame);

  // The two versions of each field from `begin` on, for those who write what shall be
  // remembered themselves.
  struct Part {
    StateIn before() const { return {before_fields.data(), fields}; }
    StateOut after() const { return {after_fields.data(), fields}; }
    size_t fields = 0;
    std::array<std::span<const float>, kMaxFields> before_fields;
    std::array<std::span<float>, kMaxFields> after_fields;
  };
  Part PartOf(size_t begin, size_t size);

  // Makes all that is pending what is remembered. Must be called once for each message, and
  // only if every part of it has been encoded without an error.
  void Commit();

  // Return what is remembered by the names of Codec::StateFields: `elements` floats for each.
  const std::vector<std::string>& names() const { return names_; }
  std::span<const float> field(size_t f) const { return fields_[f]; }
  // Returns the fields in the order of names(). They may be changed between messages.
  std::vector<std::span<float>> mutable_fields();
  // Takes up a stream where it was saved. Fails with kInvalidArgument, and changes nothing,
  // unless there are `elements` finite values for each name.
  Status Restore(StateIn fields, uint64_t messages);

  // Returns the size of the same state as bytes for a file, which include the codec's spec, the
  // number of values and a checksum.
  size_t StateBytes() const;
  // Writes these bytes, and returns how many there are. Fails with kBufferTooSmall unless
  // bytes.size() >= StateBytes().
  Result<size_t> Save(std::span<uint8_t> bytes) const;
  // Reads these bytes. Fails with kCorruptData if they are not a state or a damaged one, and
  // with kInvalidArgument if they are one of another codec or length. After an error the stream
  // is as it was before.
  Status Load(std::span<const uint8_t> bytes);

 private:
  std::shared_ptr<const Codec> codec_;
  size_t elements_;
  std::vector<std::string> names_;
  std::vector<std::vector<float>> fields_, pending_;
  uint64_t messages_ = 0;
};

}  // namespace elastiquant
