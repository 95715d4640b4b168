// A skip notice travels in place of a gradient that cannot be encoded, so that nobody waits for
// it and all workers skip the step for the same reason.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/frame.h"

namespace elastiquant {

// Marks a frame as a notice. No codec has this number.
inline constexpr CodecId kSkipNoticeId = static_cast<CodecId>(255);

// In place of a worker: no gradient is at fault, but their sum is too large.
inline constexpr uint32_t kSumOfAll = 0xffffffff;

// Who could not encode which bucket, and why.
struct SkipNotice {
  enum class Cause : uint32_t { kNan = 0, kInfinity = 1, kOutOfRange = 2 };

  // The fields are in the order in which they decide which of several notices comes first.
  uint32_t bucket = 0;
  uint32_t worker = 0;      // as WorkerNames numbers them, or kSumOfAll
  uint64_t coordinate = 0;  // in the bucket; 0 for kOutOfRange
  Cause cause = Cause::kNan;

  auto operator<=>(const SkipNotice&) const = default;
};

inline constexpr size_t kSkipNoticeBytes = kFrameHeaderBytes + 20;

// Returns a notice of the first NaN or infinity of `values`, which begin at coordinate `offset`
// of the bucket; or nullopt if all are finite.
std::optional<SkipNotice> FindNonFinite(std::span<const float> values, size_t offset,
                                        uint32_t bucket, uint32_t worker);

// Writes the notice as a frame. frame.size() >= kSkipNoticeBytes. Returns kSkipNoticeBytes.
size_t WriteSkipNotice(const SkipNotice& notice, std::span<uint8_t> frame);

// Returns the notice that the frame is, or nullopt if it is an ordinary frame, of which nothing
// is checked here. Fails with kCorruptData if it is a damaged notice.
Result<std::optional<SkipNotice>> ReadSkipNotice(std::span<const uint8_t> frame);

// Returns text such as "worker 2: NaN in bucket 3 (layer3.0.conv1.weight) at 17".
std::string Describe(const SkipNotice& notice, const std::string& bucket_name);

}  // namespace elastiquant
