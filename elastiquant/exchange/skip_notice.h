// What travels in place of a gradient that cannot be encoded, so that nobody waits for it and
// all workers skip the step for the same reason.
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

struct SkipNotice {
  enum class Cause : uint32_t { kNan = 0, kInfinity = 1, kOutOfRange = 2 };

  // In the order of precedence when there are several.
  uint32_t bucket = 0;
  uint32_t worker = 0;
  uint64_t coordinate = 0;  // in the bucket; 0 for kOutOfRange
  Cause cause = Cause::kNan;

  auto operator<=>(const SkipNotice&) const = default;
};

inline constexpr size_t kSkipNoticeBytes = kFrameHeaderBytes + 20;

// The first NaN or infinity of `values`, which begin at coordinate `offset` of the bucket.
std::optional<SkipNotice> FindNonFinite(std::span<const float> values, size_t offset,
                                        uint32_t bucket, uint32_t worker);

// frame.size() >= kSkipNoticeBytes. Returns kSkipNoticeBytes.
size_t WriteSkipNotice(const SkipNotice& notice, std::span<uint8_t> frame);

// nullopt if the frame is an ordinary one, of which nothing is checked here.
Result<std::optional<SkipNotice>> ReadSkipNotice(std::span<const uint8_t> frame);

// "worker 2: NaN in bucket 3 (layer3.0.conv1.weight) at 17"
std::string Describe(const SkipNotice& notice, const std::string& bucket_name);

}  // namespace elastiquant
