// Keeps what a codec loses for the next message: `|ef` and `|dgc`, modifiers of any lossy
// codec.
#pragma once

#include <optional>
#include <span>

#include "elastiquant/codec/registry.h"

namespace elastiquant {

// The momentum of a codec that sends velocities.
struct OwnMomentum {
  double factor = 0;
  bool nesterov = false;
};

// What else codecs can do that remember what they lost, or a velocity. The functions below that
// take a Codec say what each of these does.
class LossMemory {
 public:
  virtual ~LossMemory() = default;
  virtual void SendExactly(std::span<float> values, StateOut memory) const = 0;
  virtual bool has_learning_rate() const = 0;
  virtual std::optional<OwnMomentum> momentum() const = 0;
};

// Error feedback (Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019), with values
// v, residual e and the codec Q:
//   p = v + e;  send Q(p);  e' = p - Q(p).
// The sum of what was sent and the residual is the sum of the inputs, up to fp32 rounding. The
// state is "residual". It is stable for codecs that are contractive; a codec with an NMSE above
// 1 lets the residual grow without limit.
//   lr=outside  v is the gradient (Seide et al.).
//   lr=inside   v is the gradient times the learning rate (Karimireddy et al.): what was held
//               back at one rate is applied with that one, however the rate has changed since.
// EncodeNext does the same for both. The owner of a stream under lr=inside (HasLearningRate)
// must multiply "residual" by the old rate over the new one when the rate changes, so that it
// stays in units of the gradient.
const CodecModifier& ErrorFeedbackModifier();
bool HasLearningRate(const Codec& codec);

// Deep Gradient Compression's memory (Lin et al., ICLR 2018): error feedback of the velocity
// ("momentum correction"), with factor masking. With momentum m:
//   g = v, scaled down to the norm `clip` if it is longer;
//   u = m u + g;  w = w + u  (Nesterov: w = w + m u' + g, u' being the new u);
//   send Q(w);  w' = w - Q(w);  u' = 0 where something was sent.
// The state is "velocity" and "residual". The optimiser behind it must not have momentum of its
// own.
const CodecModifier& DgcModifier();
// Returns the momentum of a codec, which is absent if it does not send velocities.
std::optional<OwnMomentum> MomentumOf(const Codec& codec);

// Handles a message of a stream that is not encoded but sent exactly, such as a step that
// travels as fp32. It does what EncodeNext would do if its codec lost nothing: `values` become
// what is to be sent, and `memory`, of Codec::StateFields(), what is remembered from then on.
//   |ef   p = v + e is sent, and e' = 0.
//   |dgc  w + u' is sent, and w' = 0. u' stays: factor masking is for coordinates that are sent
//         ahead of others, and would take all velocity away. So this is ordinary momentum.
// Whatever else a codec remembers, such as powersgd's basis, stays as it is.
void SendExactly(const Codec& codec, std::span<float> values, StateOut memory);

}  // namespace elastiquant
