// Keeps what a codec loses for the next message: `|ef` and `|dgc`, modifiers of any lossy
// codec.
#pragma once

#include "elastiquant/codec/registry.h"

namespace elastiquant {

// Error feedback (Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019), with values
// v, residual e and the codec Q:
//   p = v + decay e;  send Q(p);  e' = p - Q(p).
// With decay=1 the sum of what was sent and the residual is the sum of the inputs, up to fp32
// rounding. With less, as in SparseLoCo (arXiv 2508.15706), the sum lacks (1 - decay) of each
// residual that was carried on, and the memory forgets as a momentum does. The state is
// "residual". It is stable for codecs that are contractive; a codec with an NMSE above
// 1 lets the residual grow without limit.
//   lr=outside  v is the gradient (Seide et al.).
//   lr=inside   v is the gradient times the learning rate (Karimireddy et al.): what was held
//               back at one rate is applied with that one, however the rate has changed since.
// Encoding does the same for both. The owner of a stream under lr=inside (HasLearningRate)
// must multiply "residual" by the old rate over the new one when the rate changes, so that it
// stays in units of the gradient.
const CodecModifier& ErrorFeedbackModifier();

// Deep Gradient Compression's memory (Lin et al., ICLR 2018): error feedback of the velocity
// ("momentum correction"), with factor masking. With momentum m:
//   g = v, scaled down to the norm `clip` if it is longer;
//   u = m u + g;  w = w + u  (Nesterov: w = w + m u' + g, u' being the new u);
//   send Q(w);  w' = w - Q(w);  u' = 0 where something was sent.
// The state is "velocity" and "residual". The optimiser behind it must not have momentum of its
// own.
const CodecModifier& DgcModifier();

}  // namespace elastiquant
