#include "elastiquant/codec/remembering.h"

namespace elastiquant {

std::vector<std::string> Codec::StateFields() const {
  const Remembering* role = remembering();
  return role == nullptr ? std::vector<std::string>() : role->Fields();
}

Result<size_t> Codec::EncodeNext(std::span<const float> values, StreamKey key, Workspace& work,
                                 std::span<uint8_t> frame, StateIn before,
                                 StateOut after) const {
  const Remembering* role = remembering();
  return role == nullptr ? Encode(values, key, work, frame)
                         : role->EncodeMessage(values, key, work, frame, before, after);
}

void SendExactly(const Codec& codec, std::span<float> values, StateOut memory) {
  if (const Remembering* role = codec.remembering()) role->SendExactly(values, memory);
}

bool HasLearningRate(const Codec& codec) {
  const Remembering* role = codec.remembering();
  return role != nullptr && role->has_learning_rate();
}

std::optional<OwnMomentum> MomentumOf(const Codec& codec) {
  const Remembering* role = codec.remembering();
  return role == nullptr ? std::nullopt : role->momentum();
}

}  // namespace elastiquant
