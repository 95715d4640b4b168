// The base of codecs that wrap another one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// Unless a subclass says otherwise, its promises, the room for its frames and the way of its
// mean are those of the codec inside. Its roles are not: integer sums, factors and memory are
// rarely what they were once something is wrapped around them, so a subclass has only those
// that it declares.
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

  Result<std::shared_ptr<const Codec>> WithShapes(
      std::span<const TensorShape> shapes) const override {
    EQ_ASSIGN_OR_RETURN(std::shared_ptr<const Codec> shaped, inner_->WithShapes(shapes));
    return shaped ? Around(std::move(shaped)) : nullptr;
  }
  std::shared_ptr<const Codec> ForEpoch(int epoch) const override {
    std::shared_ptr<const Codec> of_epoch = inner_->ForEpoch(epoch);
    return of_epoch ? Around(std::move(of_epoch)) : nullptr;
  }

 protected:
  const Codec& inner() const { return *inner_; }
  // Returns the same wrapper around the codec inside as it is for some shapes or in some epoch;
  // or null if these make no difference to what is wrapped.
  virtual std::shared_ptr<const Codec> Around(std::shared_ptr<const Codec> inner) const = 0;

 private:
  const std::shared_ptr<const Codec> inner_;
};

}  // namespace elastiquant
