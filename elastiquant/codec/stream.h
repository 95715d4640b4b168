// Encodes message after message of one sender with a codec that may remember something of each
// for the next (Codec::StateFields), such as |ef, |dgc and powersgd.
#pragma once

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

// A stream must not be used by several threads at once.
class EncoderStream {
 public:
  // Makes a stream whose messages all have `elements` values. It remembers nothing yet: all
  // fields are zeros.
  EncoderStream(std::shared_ptr<const Codec> codec, size_t elements);

  const Codec& codec() const { return *codec_; }
  size_t elements() const { return elements_; }
  uint64_t messages() const { return messages_; }  // encoded so far

  // Calls Codec::EncodeNext. Each message must be given another key. Fails with
  // kInvalidArgument if the number of values is another. After an error the stream is as it was
  // before.
  Result<size_t> EncodeNext(std::span<const float> values, StreamKey key, Workspace& work,
                            std::span<uint8_t> frame);

  // Return what is remembered by the names of Codec::StateFields: `elements` floats for each.
  const std::vector<std::string>& names() const { return names_; }
  std::span<const float> field(size_t f) const { return fields_[f]; }
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
  std::string spec_;
  std::vector<std::string> names_;
  std::vector<std::vector<float>> fields_, next_;
  uint64_t messages_ = 0;
};

}  // namespace elastiquant
