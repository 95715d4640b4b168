#include "elastiquant/exchange/sparse_choice.h"

#include <algorithm>
#include <vector>

#include "elastiquant/codec/sparse/sparse_part.h"
#include "elastiquant/exchange/sparse_sum.h"

namespace elastiquant {

SparseChoice::SparseChoice(ReduceShared& shared, BucketState& state)
    : AllGather(shared, state), scatter_(shared, state) {}

void SparseChoice::BeginStep() {
  compares_ = left_ == 0;
  if (!compares_) --left_;
  scatters_ = !compares_ && scatter_is_less_;
}

Status SparseChoice::Look(std::span<const Frame> frames, std::span<const float> sum) {
  if (!compares_) return {};
  const size_t n = sum.size();
  const auto peers = static_cast<uint64_t>(shared_.world_size - 1);
  std::vector<uint8_t> scratch(std::max(MaxSparsePartBytes(n), MaxSparseSumBytes(n)));
  std::vector<float> decoded(n);
  uint64_t all_gather = 0, scatter = 0;  // bytes, on all links together
  for (int owner = 0; owner < shared_.world_size; ++owner) {
    const Chunk chunk = ChunkOfRank(owner);
    if (chunk.size == 0) continue;
    EQ_ASSIGN_OR_RETURN(const size_t bytes,
                        EncodeSparseSum(sum.subspan(chunk.begin, chunk.size), StreamKey{},
                                        shared_.reduce.work, scratch));
    scatter += peers * (bytes + kMessageHeaderBytes);
  }
  for (int r = 0; r < shared_.world_size; ++r) {
    const Frame frame = frames[static_cast<size_t>(r)];
    all_gather += peers * (frame.size() + kMessageHeaderBytes);
    EQ_RETURN_IF_ERROR(DecodeFrame(frame, shared_.reduce.work, decoded));
    for (int owner = 0; owner < shared_.world_size; ++owner) {
      const Chunk chunk = ChunkOfRank(owner);
      if (owner == r || chunk.size == 0) continue;
      EQ_ASSIGN_OR_RETURN(
          const size_t bytes,
          EncodeSparsePart(frame, std::span(decoded).subspan(chunk.begin, chunk.size),
                           shared_.reduce.work, scratch));
      scatter += bytes + kMessageHeaderBytes;
    }
  }
  scatter_is_less_ = scatter < all_gather;
  left_ = kPeriod - 1;
  return {};
}

}  // namespace elastiquant
