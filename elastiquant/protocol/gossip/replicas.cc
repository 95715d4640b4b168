#include "elastiquant/protocol/gossip/replicas.h"

#include <algorithm>
#include <utility>

#include "elastiquant/codec/frame.h"
#include "elastiquant/kernels/norms.h"

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
  const double squares = SumSquares(q.data(), q.size());
  if (!(squares > 0)) return 1;
  return static_cast<float>(std::clamp(Dot(v, q) / squares, 0.0, 1.0));
}

// Moves values of a replica by the values q that were decoded for them. Both ends do this.
void MoveReplica(const EdgeOptions& options, float scale, std::span<const float> q,
                 uint64_t round, std::span<float> r) {
  switch (options.update) {
    case ReplicaUpdate::kDifference:
      if (options.is_lossless()) {  // then it is not a difference: no rounding adds up
        std::ranges::copy(q, r.begin());
        return;
      }
      for (size_t e = 0; e < r.size(); ++e) r[e] += scale * q[e];
      return;
    case ReplicaUpdate::kItself:
      for (size_t e = 0; e < r.size(); ++e) r[e] = scale * q[e];
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
      frame_(options.codec->MaxFrameBytes(options.elements)) {}

// What is to be encoded of `values`.
void Outlet::Write(std::span<const float> values, GossipScratch& scratch,
                   std::span<float> message) const {
  const bool is_difference =
      options_.update == ReplicaUpdate::kDifference && !options_.is_lossless();
  scratch.ForEachBlock([&](size_t begin, size_t size) {
    const std::span<float> m = message.subspan(begin, size);
    std::ranges::copy(values.subspan(begin, size), m.begin());
    if (is_difference) {
      for (size_t e = 0; e < size; ++e) m[e] -= replica_[begin + e];
    }
    if (lost_.empty()) return;
    for (size_t e = 0; e < size; ++e) m[e] += lost_[begin + e];
  });
}

// Moves the replica, and notes what the message has lost.
GossipErrors Outlet::Apply(std::span<const float> message, const Decoded& decoded,
                           uint64_t round, GossipScratch& scratch) {
  std::vector<GossipErrors> of_blocks(scratch.blocks());
  scratch.ForEachBlock([&](size_t begin, size_t size) {
    const std::span<const float> m = message.subspan(begin, size);
    const std::span<const float> q = std::span(decoded.values).subspan(begin, size);
    const std::span<float> r = std::span(replica_).subspan(begin, size);
    of_blocks[begin / GossipScratch::kBlock] = {
        .squared_error = SquaredDistance(m, q, decoded.scale),
        .squared_norm = SumSquares(m.data(), size)};
    MoveReplica(options_, decoded.scale, q, round, r);
    if (lost_.empty()) return;
    for (size_t e = 0; e < size; ++e) lost_[begin + e] = m[e] - r[e];
  });
  GossipErrors errors;
  for (const GossipErrors& of_block : of_blocks) errors += of_block;
  return errors;
}

Result<Outlet::Sent> Outlet::Show(std::span<const float> values, uint64_t round, StreamKey key,
                                  GossipScratch& scratch) {
  std::vector<float> message = scratch.Take();
  Write(values, scratch, message);
  EQ_ASSIGN_OR_RETURN(const size_t size, stream_.Encode(message, key, scratch.work(), frame_));
  EQ_RETURN_IF_ERROR(CheckGossipFrame(size));
  const std::span<const uint8_t> frame = std::span(frame_).first(size);
  Decoded decoded{.values = scratch.Take()};
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, scratch.work(), decoded.values));
  if (options_.shrinks && !options_.is_lossless()) {
    decoded.scale = NearestScale(message, decoded.values);
  }
  stream_.Commit();
  const GossipErrors errors = Apply(message, decoded, round, scratch);
  scratch.GiveBack(std::move(message));
  scratch.GiveBack(std::move(decoded.values));
  return Sent{decoded.scale, frame, errors};
}

void Outlet::ForEachField(const FieldVisitor& fn) {
  fn("replica", replica_);
  if (!lost_.empty()) fn("lost", lost_);
  const std::vector<std::span<float>> fields = stream_.mutable_fields();
  for (size_t f = 0; f < fields.size(); ++f) fn("codec/" + stream_.names()[f], fields[f]);
}

Result<Decoded> DecodeShown(int from, const GossipMessage::Stream& shown, size_t elements,
                            StreamKey key, GossipScratch& scratch) {
  const auto view = ParseFrame(shown.frame);
  if (!view.ok()) {
    return BadGossipMessage(from, "has a bad frame: " + view.status().message());
  }
  if (view->elements != elements || view->key.value != key.value) {
    return BadGossipMessage(from, "has a frame of another round, worker or length");
  }
  Decoded decoded{shown.scale, scratch.Take()};
  const Status status = DecodeFrame(shown.frame, scratch.work(), decoded.values);
  if (!status.ok()) return BadGossipMessage(from, "has a bad frame: " + status.message());
  return decoded;
}

Inlet::Inlet(const EdgeOptions& options, std::span<const float> start)
    : options_(options), replica_(StartOf(options, start)) {}

void Inlet::Take(Decoded decoded, uint64_t round, GossipScratch& scratch) {
  scratch.ForEachBlock([&](size_t begin, size_t size) {
    MoveReplica(options_, decoded.scale, std::span(decoded.values).subspan(begin, size), round,
                std::span(replica_).subspan(begin, size));
  });
  scratch.GiveBack(std::move(decoded.values));
}

}  // namespace elastiquant
