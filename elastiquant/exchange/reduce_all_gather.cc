// The stages of a bucket whose frames all go to all.
#include <algorithm>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/exchange/reduce_stages.h"

namespace elastiquant {

// Our frame of the whole bucket, in encode_frame_.
Result<std::span<const uint8_t>> ReduceStages::EncodeBucket(size_t bucket) {
  BucketBuffers& buffers = buckets_[bucket];
  const std::span<uint8_t> room = encode_frame_.AtLeast(buffers.own_room);
  EQ_ASSIGN_OR_RETURN(const size_t size,
                      EncodeOrNotice(encode_work_, bucket, buffers.bucket.gradient,
                                     buffers.Whole(), kContribute, rank_, room));
  const std::span<const uint8_t> frame = room.first(size);
  if (measuring(bucket)) {
    EQ_RETURN_IF_ERROR(Measure(bucket, buffers.Whole(), kContribute, buffers.bucket.gradient,
                               frame, &sent_, encode_work_));
  }
  return frame;
}

Status ReduceStages::EncodeWhole(size_t bucket) {
  if (buckets_[bucket].bucket.gradient.empty()) return {};
  EQ_ASSIGN_OR_RETURN(const auto frame, EncodeBucket(bucket));
  Keep(bucket, frame);
  return SendToAll(contributed_, bucket, kParts, frame);
}

// Everybody adds the same frames in the same order, his own among them.
Status ReduceStages::ReduceWhole(size_t bucket) {
  BucketBuffers& buffers = buckets_[bucket];
  if (buffers.bucket.gradient.empty()) return {};
  const std::span<float> sum = std::span(sum_).first(buffers.bucket.gradient.size());
  std::fill(sum.begin(), sum.end(), 0.0f);
  std::optional<SkipNotice> notice;
  std::vector<std::span<const uint8_t>> frames;
  for (int r = 0; r < world_size_; ++r) {
    std::span<const uint8_t> frame = buffers.kept.span();
    if (r != rank_) {
      EQ_ASSIGN_OR_RETURN(frame, Take(bucket, r, kParts));
    }
    EQ_RETURN_IF_ERROR(AddFrame(bucket, r, frame, sum, &notice));
    frames.push_back(frame);
  }
  if (!notice) notice = FindInSum(bucket, sum, 0);
  if (notice) {
    Skip(bucket, *notice);
    return {};
  }
  if (weighing(bucket)) EQ_RETURN_IF_ERROR(WeighExchanges(bucket, frames, sum));
  Divide(sum, buffers.bucket.gradient);
  return {};
}

// The mean of all workers, from their sum.
void ReduceStages::Divide(std::span<const float> sum, std::span<float> mean) const {
  const auto n = static_cast<float>(world_size_);
  std::ranges::transform(sum, mean.begin(), [n](float v) { return v / n; });
}

// A sum too large is the same on all.
std::optional<SkipNotice> ReduceStages::FindInSum(size_t bucket, std::span<const float> sum,
                                                  size_t begin) {
  return FindNonFinite(sum, begin, static_cast<uint32_t>(bucket), 0);
}

}  // namespace elastiquant
