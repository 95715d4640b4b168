// A stream of messages whose account is kept, for tests of what must be conserved: nothing that
// was given to error feedback is lost, it has been sent or is remembered.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/stream/codec_stream.h"

namespace elastiquant {

class AccountedStream {
 public:
  AccountedStream(std::shared_ptr<const Codec> codec, size_t elements)
      : codec_(std::move(codec)),
        stream_(codec_, elements),
        given_(elements),
        sent_(elements),
        forgotten_(elements) {}

  void SetCodec(std::shared_ptr<const Codec> codec) {
    codec_ = std::move(codec);
    const Status status = stream_.SetCodec(codec_);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  std::vector<std::span<float>> remembered() { return stream_.mutable_fields(); }

  // Returns the frame of a message, which counts once it is committed; it is empty if the codec
  // cannot encode such values.
  std::vector<uint8_t> Encode(std::span<const float> values, StreamKey key, Workspace& work) {
    std::vector<uint8_t> frame(codec_->MaxFrameBytes(values.size()));
    const Result<size_t> size = stream_.Encode(values, key, work, frame);
    frame.resize(size.ok() ? *size : 0);
    values_.assign(values.begin(), values.end());
    decoded_.assign(values.size(), 0);
    if (size.ok()) {
      EXPECT_TRUE(DecodeFrame(frame, work, decoded_).ok());
    }
    return frame;
  }

  void Commit() {
    const double decay = Decay();
    for (size_t i = 0; i < given_.size(); ++i) {
      given_[i] += static_cast<double>(values_[i]);
      sent_[i] += static_cast<double>(decoded_[i]);
      if (decay < 1) forgotten_[i] += (1 - decay) * static_cast<double>(stream_.field(0)[i]);
    }
    stream_.Commit();
  }

  // Goes on with a stream that has loaded what this one saves.
  void Restart() {
    std::vector<uint8_t> state(stream_.StateBytes());
    ASSERT_TRUE(stream_.Save(state).ok());
    stream_ = CodecStream(codec_, stream_.elements());
    ASSERT_TRUE(stream_.Load(state).ok());
  }

  // Sums of the messages, by coordinate: as they were given, and as they decode.
  const std::vector<double>& given() const { return given_; }
  const std::vector<double>& sent() const { return sent_; }

  // All that was given has been sent, is remembered, or was forgotten by a memory that decays.
  void Check(double tolerance) const {
    const bool remembers = !stream_.names().empty();
    if (!remembers && codec_->codec_class() != CodecClass::kLossless) return;  // no promise
    for (size_t i = 0; i < given_.size(); ++i) {
      double all = sent_[i] + forgotten_[i];
      for (size_t f = 0; f < stream_.names().size(); ++f) {
        all += static_cast<double>(stream_.field(f)[i]);
      }
      ASSERT_NEAR(all, given_[i], tolerance) << codec_->spec() << " at " << i;
    }
  }

 private:
  // What of its memory counts in the next message.
  double Decay() const {
    const std::string spec = codec_->spec();
    const size_t at = spec.find("decay=");
    return at == std::string::npos ? 1 : static_cast<double>(std::stof(spec.substr(at + 6)));
  }

  std::shared_ptr<const Codec> codec_;
  CodecStream stream_;
  std::vector<float> values_, decoded_;  // of the newest message
  std::vector<double> given_, sent_, forgotten_;
};

}  // namespace elastiquant
