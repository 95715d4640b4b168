// Any bytes, taken as a frame: inspecting and decoding give an error or finite values. Each
// input is tried as it is, and again with everything that guards the codecs made right, so that
// mutations reach what is behind the checksum.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame_testing.h"
#include "fuzz/fuzz.h"

namespace elastiquant {
namespace {

// Few enough that an input takes well under a millisecond.
constexpr size_t kMaxElements = 1 << 14;

void TryFrame(std::span<const uint8_t> frame, Workspace& work) {
  const auto summary = InspectFrame(frame);
  const size_t n = summary.ok() ? summary->elements : 1;
  if (n > kMaxElements) {  // an honest caller asks first and gives no room to a giant
    std::vector<float> values(1);
    FUZZ_CHECK(!DecodeFrame(frame, work, values).ok());
    return;
  }
  std::vector<float> values(n), sum(n, 0.0f);
  const Status decoded = DecodeFrame(frame, work, values);
  const Status added = DecodeAddFrame(frame, 1.0f, work, sum);
  FUZZ_CHECK(decoded.code() == added.code());
  FUZZ_CHECK(summary.ok() || !decoded.ok());
  if (!decoded.ok()) {
    FUZZ_CHECK(!decoded.message().empty());
    return;
  }
  FUZZ_CHECK(std::ranges::all_of(values, [](float v) { return std::isfinite(v); }));
  FUZZ_CHECK(values == sum);
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
