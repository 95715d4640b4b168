// Any floats through any codec on each SIMD target that the machine can run: the same bytes,
// and from these the same bits.
#include "elastiquant/codec/codec.h"
#include "elastiquant/kernels/targets.h"
#include "fuzz/codec_input.h"

namespace elastiquant {
namespace {

struct Outcome {
  StatusCode code = StatusCode::kOk;
  std::string message;
  std::vector<uint8_t> frame;
  std::vector<uint32_t> decoded, sum;  // as bits
};

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

Outcome Run(const CodecInput& input) {
  static Workspace work(1);
  const size_t n = input.values.size();
  Outcome outcome;
  outcome.frame.resize(input.codec->MaxFrameBytes(n));
  const auto size = input.codec->Encode(input.values, input.key, work, outcome.frame);
  outcome.code = size.status().code();
  outcome.message = size.status().message();
  outcome.frame.resize(size.ok() ? *size : 0);
  if (!size.ok()) return outcome;
  std::vector<float> decoded(n), sum(n, 0.5f);
  FUZZ_CHECK(DecodeFrame(outcome.frame, work, decoded).ok());
  FUZZ_CHECK(DecodeAddFrame(outcome.frame, 1.0f / 3, work, sum).ok());
  outcome.decoded = Bits(decoded);
  outcome.sum = Bits(sum);
  return outcome;
}

void TryTargets(const CodecInput& input) {
  static const std::vector<std::string> targets = SimdTargets();
  Outcome first;
  for (const std::string& target : targets) {
    FUZZ_CHECK(UseSimdTarget(target).ok());
    Outcome outcome = Run(input);
    if (target == targets.front()) {
      first = std::move(outcome);
      continue;
    }
    const bool same = outcome.code == first.code && outcome.message == first.message &&
                      outcome.frame == first.frame && outcome.decoded == first.decoded &&
                      outcome.sum == first.sum;
    if (!same) {
      std::fprintf(stderr, "%s of %zu values differs on %s\n", input.codec->spec().c_str(),
                   input.values.size(), target.c_str());
    }
    FUZZ_CHECK(same);
  }
}

}  // namespace
}  // namespace elastiquant

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  elastiquant::TryTargets(elastiquant::ReadCodecInput(data, size));
  return 0;
}
