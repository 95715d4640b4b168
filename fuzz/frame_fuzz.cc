// Any bytes, taken as a frame: inspecting and decoding give an error or finite values, the same
// on each SIMD target that the machine can run. Each input is tried as it is, and again with
// everything that guards the codecs made right, so that mutations reach what is behind the
// checksum.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame_testing.h"
#include "elastiquant/codec/untrusted.h"
#include "elastiquant/kernels/targets.h"
#include "fuzz/fuzz.h"

namespace elastiquant {
namespace {

// Few enough that an input takes well under a millisecond.
constexpr size_t kMaxElements = 1 << 14;

// What a frame comes to on one target.
struct Outcome {
  std::string decoded;                // "ok", or what is wrong
  std::vector<uint32_t> values, sum;  // as bits; nothing unless it is decoded
  bool operator==(const Outcome&) const = default;
};

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}
bool IsFinite(float v) { return std::isfinite(v); }

Outcome DecodeBothWays(std::span<const uint8_t> frame, size_t n, Workspace& work) {
  std::vector<float> values(n), zero(n, 0.0f), sum(n, 0.5f);
  const Status decoded = DecodeFrame(frame, work, values);
  const Status added = DecodeAddFrame(frame, 1.0f, work, zero);
  FUZZ_CHECK(decoded.ToString() == added.ToString());
  FUZZ_CHECK(decoded.ToString() == DecodeAddFrame(frame, 1.0f / 3, work, sum).ToString());
  Outcome outcome{decoded.ToString(), {}, {}};
  if (!decoded.ok()) {
    FUZZ_CHECK(!decoded.message().empty());
    return outcome;
  }
  FUZZ_CHECK(std::ranges::all_of(values, IsFinite) && values == zero);
  // Of finite values and a finite weight there is no NaN, nor here an infinity.
  FUZZ_CHECK(std::ranges::all_of(sum, IsFinite));
  outcome.values = Bits(values);
  outcome.sum = Bits(sum);
  return outcome;
}

void TryFrame(std::span<const uint8_t> frame, Workspace& work) {
  static const std::vector<std::string> targets = SimdTargets();
  const auto summary = InspectFrame(frame, kMaxElements);
  if (summary.status().code() == StatusCode::kOutOfRange) {
    // An honest caller asks first and gives no room to a giant.
    std::vector<float> values(1);
    FUZZ_CHECK(!DecodeFrame(frame, work, values).ok());
    return;
  }
  const size_t n = summary.ok() ? summary->elements : 1;
  Outcome first;
  for (const std::string& target : targets) {
    FUZZ_CHECK(UseSimdTarget(target).ok());
    Outcome outcome = DecodeBothWays(frame, n, work);
    FUZZ_CHECK(summary.ok() || outcome.decoded != "ok");
    if (target == targets.front()) {
      first = std::move(outcome);
    } else if (!(outcome == first)) {
      std::fprintf(stderr, "on %s: %s, on %s: %s\n", targets.front().c_str(),
                   first.decoded.c_str(), target.c_str(), outcome.decoded.c_str());
      FUZZ_CHECK(false);
    }
    if (!summary.ok()) break;  // no codec has seen it
  }
}

void MakeHeaderRight(std::vector<uint8_t>& frame) {
  frame.resize(std::max(frame.size(), kFrameHeaderBytes));
  std::memcpy(frame.data(), &kFrameMagic, sizeof(kFrameMagic));
  frame[4] = kFrameVersion;
  const size_t body = frame.size() - kFrameHeaderBytes;
  frame[7] = static_cast<uint8_t>(std::min<size_t>(frame[7], body));
  const uint64_t payload = body - frame[7];
  std::memcpy(frame.data() + 24, &payload, sizeof(payload));
  FixFrameChecksum(frame);
}

}  // namespace
}  // namespace elastiquant

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static elastiquant::Workspace work(1);
  std::vector<uint8_t> frame(data, data + size);
  elastiquant::TryFrame(frame, work);
  elastiquant::MakeHeaderRight(frame);
  elastiquant::TryFrame(frame, work);
  return 0;
}
