// The role of codecs that remember something of a message for the next message of the stream:
// |ef, |dgc and powersgd.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// The momentum of a codec that sends velocities.
struct OwnMomentum {
  double factor = 0;
  bool nesterov = false;
};

class Remembering {
 public:
  virtual ~Remembering() = default;

  // Returns the names of what is remembered: at least one.
  virtual std::vector<std::string> Fields() const = 0;
  // Does what Codec::Encode does, for a message of a stream. It reads what was remembered
  // before it, and writes all of `after`, which is other memory, so that a message that is
  // never sent can be forgotten.
  virtual Result<size_t> EncodeMessage(std::span<const float> values, StreamKey key,
                                       Workspace& work, std::span<uint8_t> frame,
                                       StateIn before, StateOut after) const = 0;

  // The functions below, which take any codec, say what these do.
  virtual void SendExactly(std::span<float> /*values*/, StateOut /*memory*/) const {}
  virtual bool has_learning_rate() const { return false; }
  virtual std::optional<OwnMomentum> momentum() const { return std::nullopt; }
};

// Handles a message of a stream that is not encoded but sent exactly, such as a step that
// travels as fp32. It does what EncodeNext would do if its codec lost nothing: `values` become
// what is to be sent, and `memory`, of Codec::StateFields(), what is remembered from then on.
//   |ef   p = v + decay e is sent, and e' = 0.
//   |dgc  w + u' is sent, and w' = 0. u' stays: factor masking is for coordinates that are sent
//         ahead of others, and would take all velocity away. So this is ordinary momentum.
// Whatever else a codec remembers, such as powersgd's basis, stays as it is.
void SendExactly(const Codec& codec, std::span<float> values, StateOut memory);

// Returns whether what is remembered is in units of the learning rate times the gradient, as
// under |ef:lr=inside (see error_feedback.h).
bool HasLearningRate(const Codec& codec);

// Returns the momentum of a codec, which is absent if it does not send velocities. If there is
// one, what is decoded is a velocity already, and an optimiser must not add momentum.
std::optional<OwnMomentum> MomentumOf(const Codec& codec);

}  // namespace elastiquant
