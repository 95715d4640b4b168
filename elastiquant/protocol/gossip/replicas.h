// The two ends of an edge: what a worker has shown a neighbour, as the neighbour knows it. Both
// compute it from the same bytes, so that it is the same to the bit on both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"
#include "elastiquant/protocol/gossip/message.h"
#include "elastiquant/protocol/gossip/rules.h"
#include "elastiquant/protocol/gossip/scratch.h"
#include "elastiquant/stream/codec_stream.h"

namespace elastiquant {

// What the two ends have to agree on.
struct EdgeOptions {
  std::shared_ptr<const Codec> codec;
  size_t elements = 0;
  ReplicaUpdate update = ReplicaUpdate::kDifference;
  bool shrinks = true;

  bool is_lossless() const { return codec->codec_class() == CodecClass::kLossless; }
};

using FieldVisitor = std::function<void(std::string_view name, std::span<float> values)>;

// Of the messages that a worker has encoded.
struct GossipErrors {
  double squared_error = 0;  // of what replicas are moved by, against what is encoded
  double squared_norm = 0;   // of what is encoded

  GossipErrors& operator+=(const GossipErrors& other) {
    squared_error += other.squared_error;
    squared_norm += other.squared_norm;
    return *this;
  }
};

// What is made of the bytes of a message before they count.
struct Decoded {
  float scale = 1;
  std::vector<float> values;
};

// The sender's end.
class Outlet {
 public:
  // The replica begins at `start`, or at zero if that is empty.
  Outlet(const EdgeOptions& options, std::span<const float> start);

  struct Sent {
    float scale = 1;
    std::span<const uint8_t> frame;  // valid until the next Show
    GossipErrors errors;
  };
  // Encodes what the replica lacks of `values`, as `update` says, and moves the replica as the
  // receiver will. `round` counts from 0. Fails where the codec does, and has changed nothing
  // then.
  Result<Sent> Show(std::span<const float> values, uint64_t round, StreamKey key,
                    GossipScratch& scratch);

  std::span<const float> replica() const { return replica_; }
  void ForEachField(const FieldVisitor& fn);

 private:
  void Write(std::span<const float> values, GossipScratch& scratch,
             std::span<float> message) const;
  GossipErrors Apply(std::span<const float> message, const Decoded& decoded, uint64_t round,
                     GossipScratch& scratch);

  EdgeOptions options_;
  CodecStream stream_;
  std::vector<float> replica_;
  std::vector<float> lost_;  // DeepSqueeze: what earlier messages have lost
  std::vector<uint8_t> frame_;
};

// Decodes the frame of a message's vector that must have come from worker `from` under this
// key. Fails with CorruptData, which names the worker.
Result<Decoded> DecodeShown(int from, const GossipMessage::Stream& shown, size_t elements,
                            StreamKey key, GossipScratch& scratch);

// The receiver's end.
class Inlet {
 public:
  Inlet(const EdgeOptions& options, std::span<const float> start);

  // Moves the replica by what has come of round `round`, and gives its vector back.
  void Take(Decoded decoded, uint64_t round, GossipScratch& scratch);

  std::span<const float> replica() const { return replica_; }
  void ForEachField(const FieldVisitor& fn) { fn("replica", replica_); }

 private:
  EdgeOptions options_;
  std::vector<float> replica_;
};

}  // namespace elastiquant
