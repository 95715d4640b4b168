// What a worker sends a neighbour in a round: a header, and a frame for each vector shown.
// (docs/frame-format.md, section 16.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/protocol/gossip/rules.h"

namespace elastiquant {

// What a message is for. Rounds have kShow only; pairs ask, answer, and say that they pause.
enum class GossipPart : uint8_t { kShow = 0, kAsk = 1, kAnswer = 2, kPause = 3 };

struct GossipMessage {
  GossipKind kind = GossipKind::kDpsgd;
  GossipPart part = GossipPart::kShow;
  uint64_t round = 0;
  double weight = 1;  // push-sum's, above 0
  struct Stream {
    float scale = 1;                 // what the decoded frame is multiplied by, in [0, 1]
    std::span<const uint8_t> frame;  // for which CheckGossipFrame must be OK
  };
  std::vector<Stream> streams = {};
};

// Returns the error of a message that is refused; `what` completes "the message of worker 3".
Status BadGossipMessage(int from, const std::string& what);

// Fails with kInvalidArgument for a frame of so many bytes as a message cannot tell.
Status CheckGossipFrame(size_t bytes);

// The bytes beside the frames.
size_t GossipHeaderBytes(size_t streams);

// Writes the message's bytes into *bytes.
void WriteGossipMessage(const GossipMessage& message, std::vector<uint8_t>* bytes);

// Reads a message, whose frames point into `bytes`. Fails with kCorruptData for bytes that are
// none; frames are not looked into.
Result<GossipMessage> ReadGossipMessage(std::span<const uint8_t> bytes);

}  // namespace elastiquant
