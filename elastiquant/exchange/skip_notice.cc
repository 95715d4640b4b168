#include "elastiquant/exchange/skip_notice.h"

#include <cmath>

#include "elastiquant/base/bytes.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

constexpr size_t kCodecIdOffset = 5;  // after magic and version

}  // namespace

std::optional<SkipNotice> FindNonFinite(std::span<const float> values, size_t offset,
                                        uint32_t bucket, uint32_t worker) {
  if (AllFinite(values)) return std::nullopt;
  size_t i = 0;
  while (std::isfinite(values[i])) ++i;
  const auto cause =
      std::isnan(values[i]) ? SkipNotice::Cause::kNan : SkipNotice::Cause::kInfinity;
  return SkipNotice{bucket, worker, offset + i, cause};
}

size_t WriteSkipNotice(const SkipNotice& notice, std::span<uint8_t> frame) {
  ByteWriter payload(frame.subspan(FramePayloadOffset(0)));
  payload.Write(notice.bucket);
  payload.Write(notice.worker);
  payload.Write(notice.coordinate);
  payload.Write(notice.cause);
  FrameView view;
  view.codec = kSkipNoticeId;
  view.payload = frame.subspan(FramePayloadOffset(0), payload.position());
  return SealFrame(view, frame);
}

Result<std::optional<SkipNotice>> ReadSkipNotice(std::span<const uint8_t> frame) {
  if (frame.size() <= kCodecIdOffset ||
      frame[kCodecIdOffset] != static_cast<uint8_t>(kSkipNoticeId)) {
    return std::optional<SkipNotice>();
  }
  EQ_ASSIGN_OR_RETURN(const FrameView view, ParseFrame(frame));
  SkipNotice notice;
  ByteReader payload(view.payload);
  payload.Read(&notice.bucket);
  payload.Read(&notice.worker);
  payload.Read(&notice.coordinate);
  payload.Read(&notice.cause);
  if (payload.failed() || payload.remaining() != 0 ||
      notice.cause > SkipNotice::Cause::kOutOfRange) {
    return CorruptData("skip notice check failed: its payload makes no sense");
  }
  return std::optional<SkipNotice>(notice);
}

std::string Describe(const SkipNotice& notice, const std::string& bucket_name) {
  const std::string where = "bucket " + std::to_string(notice.bucket) +
                            (bucket_name.empty() ? "" : " (" + bucket_name + ")");
  const std::string who = notice.worker == kSumOfAll
                              ? "the sum of all workers: "
                              : "worker " + std::to_string(notice.worker) + ": ";
  switch (notice.cause) {
    case SkipNotice::Cause::kNan:
      return who + "NaN in " + where + " at " + std::to_string(notice.coordinate);
    case SkipNotice::Cause::kInfinity:
      return who + "infinity in " + where + " at " + std::to_string(notice.coordinate);
    case SkipNotice::Cause::kOutOfRange:
      break;
  }
  return who + "values too large to encode in " + where;
}

}  // namespace elastiquant
