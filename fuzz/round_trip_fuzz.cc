// Any floats through any codec and back: what cannot be sent is refused in words, and what is
// sent arrives, within what the codec's class guarantees of every single message.
#include <map>

#include "elastiquant/codec/codec.h"
#include "fuzz/codec_input.h"

namespace elastiquant {
namespace {

bool IsFinite(float v) { return std::isfinite(v); }

// Of codecs that draw nothing the bound on the error holds for each message.
void CheckBound(const Codec& codec, const std::vector<float>& values,
                const std::vector<float>& decoded) {
  double norm = 0, error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i], e = decoded[i] - v;
    // Squares of smaller ones are no normal numbers, or no sum of them is.
    if (v != 0 && (std::abs(v) < 1e-15 || std::abs(v) > 1e15)) return;
    norm += v * v;
    error += e * e;
  }
  const auto bound = codec.NmseBound(values.size());
  FUZZ_CHECK(bound.has_value() && *bound < 1);
  FUZZ_CHECK(error <= *bound * norm * (1 + 1e-5) + norm * 0x1p-40);
}

std::vector<float> RoundTrip(const Codec& codec, const std::vector<float>& values,
                             StreamKey key) {
  Workspace work(1);
  std::vector<uint8_t> frame(codec.MaxFrameBytes(values.size()));
  const auto size = codec.Encode(values, key, work, frame);
  std::vector<float> decoded(values.size());
  FUZZ_CHECK(size.ok() && DecodeFrame({frame.data(), *size}, work, decoded).ok());
  return decoded;
}

// Whether the key makes no difference; asked of a message long enough to show one.
bool DrawsNothing(const Codec& codec) {
  static std::map<const Codec*, bool> known;
  const auto [entry, is_new] = known.try_emplace(&codec, false);
  if (is_new) {
    std::vector<float> values(700);
    for (uint32_t i = 0; i < 700; ++i) values[i] = UniformFloat(RandomBits({1, 2}, i)) - 0.5f;
    entry->second = RoundTrip(codec, values, {1}) == RoundTrip(codec, values, {2});
  }
  return entry->second;
}

void TryRoundTrip(const CodecInput& input) {
  static Workspace work(1);
  const Codec& codec = *input.codec;
  const std::vector<float>& values = input.values;
  std::vector<uint8_t> frame(codec.MaxFrameBytes(values.size()));
  const auto size = codec.Encode(values, input.key, work, frame);
  const bool finite = std::ranges::all_of(values, IsFinite);
  if (!size.ok()) {
    const StatusCode code = size.status().code();
    FUZZ_CHECK(code == StatusCode::kOutOfRange || (!finite && code == StatusCode::kNonFinite));
    FUZZ_CHECK(!size.status().message().empty());
    return;
  }
  FUZZ_CHECK(finite && *size <= frame.size());
  frame.resize(*size);
  const auto summary = InspectFrame(frame);
  FUZZ_CHECK(summary.ok() && summary->elements == values.size());
  std::vector<float> decoded(values.size(), 7.0f), sum(values.size(), 0.0f);
  FUZZ_CHECK(DecodeFrame(frame, work, decoded).ok());
  FUZZ_CHECK(DecodeAddFrame(frame, 1, work, sum).ok());
  FUZZ_CHECK(decoded == sum && std::ranges::all_of(decoded, IsFinite));
  if (codec.codec_class() == CodecClass::kLossless && !values.empty()) {
    FUZZ_CHECK(std::memcmp(decoded.data(), values.data(), 4 * values.size()) == 0);
  }
  if (codec.codec_class() == CodecClass::kContractive && DrawsNothing(codec)) {
    CheckBound(codec, values, decoded);
  }
}

}  // namespace
}  // namespace elastiquant

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  elastiquant::TryRoundTrip(elastiquant::ReadCodecInput(data, size));
  return 0;
}
