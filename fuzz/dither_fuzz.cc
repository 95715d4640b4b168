// Bytes 0 and 1 choose density and rate or error, bytes 2 and 3 the stream key. The rest, taken
// as floats again and again up to a length of bytes 4 and 5, is encoded by the dither codec:
// refused, or decoded with no error above half a step.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame.h"
#include "fuzz/fuzz.h"

namespace elastiquant {
namespace {

constexpr size_t kFront = 6;
constexpr size_t kStepOffset = kFrameHeaderBytes + 4;

std::string SpecOf(uint8_t kind, uint8_t rate) {
  constexpr const char* kModels[] = {"auto", "laplace", "gauss"};
  const std::string model = std::string("dither:model=") + kModels[kind % 3];
  // Half a bit to eight, or an error of 1e-6 to 10.
  if (kind < 128) return model + ",bits=" + std::to_string(0.5 + 7.5 * rate / 255);
  return model + ",nmse=" + std::to_string(std::pow(10, rate % 8 - 6.0));
}

std::vector<float> ValuesOf(const uint8_t* data, size_t size, size_t length) {
  const size_t distinct = size / sizeof(float);
  std::vector<float> values(distinct == 0 ? 0 : std::max(length, distinct));
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&values[i], data + i % distinct * sizeof(float), sizeof(float));
  }
  return values;
}

void CheckErrors(std::span<const float> values, std::span<const float> decoded, double step) {
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i];
    // Value in steps, sum with the dither, product with the step: each is rounded.
    const double rounding = (std::abs(v) + step) * 0x1p-21 +
                            static_cast<double>(std::numeric_limits<float>::denorm_min());
    FUZZ_CHECK(std::abs(decoded[i] - v) <= step / 2 + rounding);
  }
}

}  // namespace
}  // namespace elastiquant

using namespace elastiquant;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kFront) return 0;
  static Workspace work(1);
  const auto codec = MakeCodec(SpecOf(data[0], data[1]));
  FUZZ_CHECK(codec.ok());
  const size_t length = (data[4] | size_t{data[5]} << 8) % 20000;
  const std::vector<float> values = ValuesOf(data + kFront, size - kFront, length);
  std::vector<uint8_t> frame((*codec)->MaxFrameBytes(values.size()));
  const StreamKey key = DeriveKey(data[2], data[3], 0, 0);
  const auto written = (*codec)->Encode(values, key, work, frame);
  if (!written.ok()) {
    FUZZ_CHECK(!written.status().message().empty());
    return 0;
  }
  float step;
  std::memcpy(&step, frame.data() + kStepOffset, sizeof(step));
  std::vector<float> decoded(values.size());
  FUZZ_CHECK(DecodeFrame(std::span(frame).first(*written), work, decoded).ok());
  CheckErrors(values, decoded, step);
  return 0;
}
