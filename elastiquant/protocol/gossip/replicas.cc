#include "elastiquant/protocol/gossip/replicas.h"

#include <algorithm>

#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

std::vector<float> StartOf(const EdgeOptions& options, std::span<const float> start) {
  std::vector<float> replica(options.elements);
  std::ranges::copy(start, replica.begin());
  return replica;
}

// The multiple of q that is nearest to v. It is never further from v than 0 is, whatever the
// codec has made of v, and it is near the 1 / (1 + omega) by which unbiased codecs are divided.
float NearestScale(std::span<const float> v, std::span<const float> q) {
  double product = 0, squares = 0;
  for (size_t e = 0; e < v.size(); ++e) {
    product += static_cast<double>(v[e]) * static_cast<double>(q[e]);
    squares += static_cast<double>(q[e]) * static_cast<double>(q[e]);
  }
  if (!(squares > 0)) return 1;
  return static_cast<float>(std::clamp(product / squares, 0.0, 1.0));
}

GossipErrors ErrorsOf(std::span<const float> v, const Decoded& decoded) {
  GossipErrors errors;
  for (size_t e = 0; e < v.size(); ++e) {
    const auto value = static_cast<double>(v[e]);
    const double error = value - static_cast<double>(decoded.scale * decoded.values[e]);
    errors.squared_error += error * error;
    errors.squared_norm += value * value;
  }
  return errors;
}

// Both ends do this.
void MoveReplica(const EdgeOptions& options, const Decoded& decoded, uint64_t round,
                 std::vector<float>* replica) {
  std::vector<float>& r = *replica;
  const std::vector<float>& q = decoded.values;
  switch (options.update) {
    case ReplicaUpdate::kDifference:
      if (options.is_lossless()) {  // then it is not a difference: no rounding adds up
        r = q;
        return;
      }
      for (size_t e = 0; e < r.size(); ++e) r[e] += decoded.scale * q[e];
      return;
    case ReplicaUpdate::kItself:
      for (size_t e = 0; e < r.size(); ++e) r[e] = decoded.scale * q[e];
      return;
    case ReplicaUpdate::kExtrapolated: {
      const float share = 2 / static_cast<float>(round + 1);
      for (size_t e = 0; e < r.size(); ++e) r[e] = (1 - share) * r[e] + share * q[e];
      return;
    }
  }
}

}  // namespace

Outlet::Outlet(const EdgeOptions& options, std::span<const float> start)
    : options_(options),
      stream_(options.codec, options.elements),
      replica_(StartOf(options, start)),
      lost_(options.update == ReplicaUpdate::kItself ? options.elements : 0),
      message_(options.elements),
      frame_(options.codec->MaxFrameBytes(options.elements)) {}

Result<Outlet::Sent> Outlet::Show(std::span<const float> values, uint64_t round, StreamKey key,
                                  Workspace& work) {
  std::ranges::copy(values, message_.begin());
  if (options_.update == ReplicaUpdate::kDifference && !options_.is_lossless()) {
    for (size_t e = 0; e < message_.size(); ++e) message_[e] -= replica_[e];
  }
  for (size_t e = 0; e < lost_.size(); ++e) message_[e] += lost_[e];
  EQ_ASSIGN_OR_RETURN(const size_t size, stream_.Encode(message_, key, work, frame_));
  const std::span<const uint8_t> frame = std::span(frame_).first(size);
  Decoded decoded{.values = std::move(decoded_)};
  decoded.values.resize(options_.elements);
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, work, decoded.values));
  if (options_.shrinks && !options_.is_lossless()) {
    decoded.scale = NearestScale(message_, decoded.values);
  }
  const GossipErrors errors = ErrorsOf(message_, decoded);
  stream_.Commit();
  MoveReplica(options_, decoded, round, &replica_);
  for (size_t e = 0; e < lost_.size(); ++e) lost_[e] = message_[e] - replica_[e];
  decoded_ = std::move(decoded.values);
  return Sent{decoded.scale, frame, errors};
}

void Outlet::ForEachField(const FieldVisitor& fn) {
  fn("replica", replica_);
  if (!lost_.empty()) fn("lost", lost_);
  const std::vector<std::span<float>> fields = stream_.mutable_fields();
  for (size_t f = 0; f < fields.size(); ++f) fn("codec/" + stream_.names()[f], fields[f]);
}

Result<Decoded> DecodeShown(int from, const GossipMessage::Stream& shown, size_t elements,
                            StreamKey key, Workspace& work) {
  const auto view = ParseFrame(shown.frame);
  if (!view.ok()) {
    return BadGossipMessage(from, "has a bad frame: " + view.status().message());
  }
  if (view->elements != elements || view->key.value != key.value) {
    return BadGossipMessage(from, "has a frame of another round, worker or length");
  }
  Decoded decoded{shown.scale, std::vector<float>(elements)};
  const Status status = DecodeFrame(shown.frame, work, decoded.values);
  if (!status.ok()) return BadGossipMessage(from, "has a bad frame: " + status.message());
  return decoded;
}

Inlet::Inlet(const EdgeOptions& options, std::span<const float> start)
    : options_(options), replica_(StartOf(options, start)) {}

void Inlet::Take(const Decoded& decoded, uint64_t round) {
  MoveReplica(options_, decoded, round, &replica_);
}

}  // namespace elastiquant
