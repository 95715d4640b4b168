// The base of codecs that wrap another one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// It has the promises, the room for frames, the encoding and the exchange of the codec inside,
// unless a subclass says otherwise. It has none of its roles: integer sums, factors, memory and
// other forms by shape or epoch are rarely what they were once something is wrapped around
// them, so a subclass has only those that it declares.
class CodecDecorator : public Codec {
 public:
  explicit CodecDecorator(std::shared_ptr<const Codec> inner) : inner_(std::move(inner)) {}

  CodecClass codec_class() const override { return inner_->codec_class(); }
  std::optional<double> NmseBound(size_t n) const override { return inner_->NmseBound(n); }
  size_t granule() const override { return inner_->granule(); }
  size_t MaxFrameBytes(size_t n) const override { return inner_->MaxFrameBytes(n); }
  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    return inner_->Encode(values, key, work, frame);
  }
  Exchange exchange() const override { return inner_->exchange(); }

 protected:
  const Codec& inner() const { return *inner_; }

 private:
  const std::shared_ptr<const Codec> inner_;
};

}  // namespace elastiquant
