// Message after message of one sender, under a codec that may remember something of each for
// the next (Codec::StateFields: |ef, |dgc, powersgd).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// kInvalidArgument if the codec remembers: a message encoded by itself would drop that unseen.
// `instead` ends the error: what to call for a stream.
Status CheckRemembersNothing(const Codec& codec, std::string_view instead);

// Not for several threads at once.
class EncoderStream {
 public:
  // All messages have `elements` values. Nothing is remembered yet: all fields are zeros.
  EncoderStream(std::shared_ptr<const Codec> codec, size_t elements);

  const Codec& codec() const { return *codec_; }
  size_t elements() const { return elements_; }
  uint64_t messages() const { return messages_; }  // encoded so far

  // Codec::EncodeNext; give each message another key. kInvalidArgument for another number of
  // values. After an error the stream is as it was before.
  Result<size_t> EncodeNext(std::span<const float> values, StreamKey key, Workspace& work,
                            std::span<uint8_t> frame);

  // What is remembered, by Codec::StateFields: `elements` floats each.
  const std::vector<std::string>& names() const { return names_; }
  std::span<const float> field(size_t f) const { return fields_[f]; }
  // Takes up a stream where it was saved. kInvalidArgument, and nothing is changed, unless
  // there are `elements` finite values for each name.
  Status Restore(StateIn fields, uint64_t messages);

  // The same as bytes, for a file: with the codec's spec, the number of values and a checksum.
  size_t StateBytes() const;
  // bytes.size() >= StateBytes(), else kBufferTooSmall. Returns how many were written.
  Result<size_t> Save(std::span<uint8_t> bytes) const;
  // kCorruptData for what is no state or a damaged one, kInvalidArgument for one of another
  // codec or length; after an error the stream is as it was before.
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
