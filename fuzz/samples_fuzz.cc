// The bytes are a message of samples whose checksum is made right: two receivers that have got
// the same before must say the same of it, and what they accept must be within its ranges.
#include <algorithm>
#include <cstring>
#include <vector>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/protocol/sample_exchange.h"
#include "fuzz/fuzz.h"

namespace elastiquant {
namespace {

constexpr size_t kFront = SampleExchange::kHeaderBytes - sizeof(uint32_t);
constexpr int64_t kSamples = 50, kClasses = 10, kBatch = 8;

SampleExchange MakeReceiver(bool cached) {
  return SampleExchange::Make(
             {.rank = 1,
              .world_size = 2,
              .codec = MakePixelCodec({.bits = 2}, {.side = 2, .channels = 1}, 1),
              .samples = kSamples,
              .classes = kClasses,
              .batch = kBatch,
              .cached = cached})
      .value();
}

void TakeTwice(std::span<const uint8_t> message, uint64_t step, bool cached) {
  SampleExchange one = MakeReceiver(cached), other = MakeReceiver(cached);
  for (int time = 0; time < 2; ++time) {
    const auto got = one.OnMessage(0, step, message);
    const auto same = other.OnMessage(0, step, message);
    FUZZ_CHECK(got.ok() == same.ok());
    if (!got.ok()) return;
    FUZZ_CHECK(got->size() <= static_cast<size_t>(kBatch) && got->size() == same->size());
    for (size_t i = 0; i < got->size(); ++i) {
      const ReceivedSample& sample = (*got)[i];
      FUZZ_CHECK(sample.id >= 0 && sample.id < kSamples);
      FUZZ_CHECK(sample.label >= 0 && sample.label < kClasses);
      FUZZ_CHECK(sample.weight >= 1 && sample.pixels.size() == 4);
      FUZZ_CHECK(std::ranges::equal(sample.pixels, (*same)[i].pixels));
    }
  }
}

}  // namespace
}  // namespace elastiquant

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace elastiquant;
  if (size < SampleExchange::kHeaderBytes) return 0;
  std::vector<uint8_t> message(data, data + size);
  uint64_t step = 0;
  std::memcpy(&step, data + 8, sizeof(step));
  const std::span<const uint8_t> bytes(message);
  const uint32_t checksum =
      Crc32c(bytes.first(kFront)) ^ Crc32c(bytes.subspan(SampleExchange::kHeaderBytes));
  std::memcpy(message.data() + kFront, &checksum, sizeof(checksum));
  TakeTwice(message, step, true);
  TakeTwice(message, step, false);
  return 0;
}
