#include "elastiquant/exchange/all_gather.h"

#include <algorithm>

namespace elastiquant {

AllGather::AllGather(ReduceShared& shared, BucketState& state) : Strategy(shared, state) {
  if (gradient().empty()) return;
  for (int r = 0; r < shared.world_size; ++r) {
    if (r != shared.rank) room(r, Mail::kParts) = WholeRoom();
  }
}

Status AllGather::Encode() {
  if (gradient().empty()) return {};
  EQ_ASSIGN_OR_RETURN(const Frame frame, EncodeWhole());
  Keep(frame);
  return SendToAll(shared_.encode.sends, Mail::kParts, frame);
}

// Everybody adds the same frames in the same order, his own among them.
Status AllGather::Reduce() {
  if (gradient().empty()) return {};
  const std::span<float> sum = shared_.reduce_sum.AtLeast(gradient().size());
  std::ranges::fill(sum, 0.0f);
  Notice notice;
  std::vector<Frame> frames;
  for (int r = 0; r < shared_.world_size; ++r) {
    Frame frame = state_.kept.span();
    if (r != shared_.rank) {
      EQ_ASSIGN_OR_RETURN(frame, Take(r, Mail::kParts));
    }
    EQ_RETURN_IF_ERROR(AddFrame(r, frame, sum, &notice));
    frames.push_back(frame);
  }
  if (!notice) notice = FindInSum(sum, 0);
  if (notice) {
    Skip(*notice);
    return {};
  }
  EQ_RETURN_IF_ERROR(Look(frames, sum));
  Divide(sum, gradient());
  return {};
}

}  // namespace elastiquant
