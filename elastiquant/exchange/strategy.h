// A strategy is one way to the mean, for one bucket: what a worker sends of it to whom, and
// what it makes of what comes in. There is a file for each: two_phase, all_gather,
// sparse_scatter, sparse_choice and integer_sum. Means by factors are a reducer around the
// reducer (low_rank_reducer.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "elastiquant/exchange/chunk.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/exchange/reduce_shared.h"
#include "elastiquant/exchange/skip_notice.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/stream/codec_stream.h"

namespace elastiquant {

// What a message is made of, and what its random numbers depend on. There are two messages a
// bucket and chunk: a contribution to a sum, and the mean that is shared with all.
enum class Phase : uint32_t { kContribute = 0, kShare = 1 };

// What may come from a worker for a bucket, each under a tag of its own: parts of a sum, the
// mean or sum of its chunk, scales. Each channel has a range of its own of the tags, which have
// 24 bits.
enum class Mail : uint32_t { kParts = 0, kMeans = 1, kScales = 2 };
inline constexpr size_t kMails = 3;
inline constexpr uint32_t kTagsOfChannel = (uint32_t{1} << 24) / kMaxChannels;
constexpr uint32_t TagOf(uint32_t channel, size_t bucket, Mail mail) {
  return channel * kTagsOfChannel + static_cast<uint32_t>(kMails * bucket) +
         static_cast<uint32_t>(mail);
}

struct BucketState {
  BucketState(size_t bucket_index, GradientBucket gradient_bucket, int world_size);

  size_t index;
  GradientBucket bucket;
  CodecStream stream;              // committed by a step only if no worker skips it
  std::optional<size_t> residual;  // the field of the stream that has what was lost
  BufferPool::Buffer kept;         // the frame of ours that Reduce adds with the others'
  // By rank: what has been posted in this step.
  std::vector<std::array<std::unique_ptr<Incoming>, kMails>> receives;
  uint16_t metric = 0;              // of this step's gradient (GradientReducer::MarkReady)
  std::atomic<bool> reduced{true};  // whether all workers could encode it in this step
};

// The four stages are called for one bucket after the other, each by its own thread, and each
// for a bucket only when the stage before is done with it, unless may_overlap().
class Strategy {
 public:
  Strategy(ReduceShared& shared, BucketState& state);
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // Called at the beginning of a step, before everything else.
  virtual void BeginStep() {}
  // Returns how many bytes may come from worker `rank` in this step; 0 if nothing comes.
  virtual size_t Room(int rank, Mail mail) const {
    return room_[static_cast<size_t>(rank)][static_cast<size_t>(mail)];
  }

  // Stage 1 sends what all workers must know before any of them encodes.
  virtual Status Announce() { return {}; }
  // Stage 2 encodes this worker's gradient, and sends it whole or in parts.
  virtual Status Encode() = 0;
  // Stage 3 adds up what has come, and sends the part of the sum that this worker owns to all.
  virtual Status Reduce() = 0;
  // Stage 4 takes in the parts that the others own. After it the gradient is the mean.
  virtual Status Gather() = 0;

  // Whether a stage may begin with the bucket before the stage in front of it is done.
  virtual bool may_overlap() const { return false; }
  // Returns the chunk in whose memory the codec keeps what the mean has lost, not the worker's
  // gradient.
  virtual Chunk owned_chunk() const { return {}; }
  // Whether a step has written all of what the codec shall remember.
  virtual bool remembers() const { return true; }

 protected:
  using Frame = std::span<const uint8_t>;
  using Notice = std::optional<SkipNotice>;

  const GradientBucket& bucket() const { return state_.bucket; }
  std::span<float> gradient() const { return state_.bucket.gradient; }
  std::span<float> Part(Chunk chunk) const {
    return gradient().subspan(chunk.begin, chunk.size);
  }
  Chunk Whole() const { return {0, gradient().size()}; }
  Chunk ChunkOfRank(int rank) const {
    return ChunkOf(gradient().size(), shared_.world_size, rank);
  }
  // Of this worker, in its notices.
  uint32_t own_number() const {
    return static_cast<uint32_t>(shared_.names.number(shared_.rank));
  }
  bool is_lone() const { return shared_.world_size == 1; }
  bool measuring() const { return shared_.measuring && !bucket().derived; }
  // Each worker begins with the next one, so that no link is asked by all at once.
  int NthPeer(int n) const { return (shared_.rank + n) % shared_.world_size; }

  // Returns the codec under which this worker encodes the frames of a phase.
  const Codec& codec(Phase phase) const {
    return phase == Phase::kShare && bucket().down ? *bucket().down : *bucket().codec;
  }
  // Returns the codec whose bounds hold for this worker's frames of a phase.
  virtual const Codec* bounded(Phase phase) const { return &codec(phase); }
  // Returns the bytes of the longest frame of n values that any worker may send, or of a notice
  // if that is longer.
  size_t FrameRoom(size_t n, Phase phase) const;
  static size_t RoomFor(size_t frame_bytes) { return std::max(frame_bytes, kSkipNoticeBytes); }
  size_t& room(int rank, Mail mail) {
    return room_[static_cast<size_t>(rank)][static_cast<size_t>(mail)];
  }

  // Names the random numbers of one of this worker's messages. `chunk` is the rank of its
  // owner.
  StreamKey KeyOf(Phase phase, int chunk) const;
  // Encodes `values`, which belong to `part` of the bucket. If they cannot be encoded, a notice
  // that says why is written in their place. Returns the size of the frame.
  Result<size_t> EncodeOrNotice(Workspace& work, std::span<const float> values, Chunk part,
                                Phase phase, int chunk, std::span<uint8_t> frame);
  // Encodes the whole bucket into the Encode stage's memory, where there is room for so much.
  size_t WholeRoom() const { return FrameRoom(gradient().size(), Phase::kContribute); }
  Result<Frame> EncodeWhole();
  // Writes a notice in place of the frame of `values`, which begin at `begin` of the bucket,
  // and returns its size. If `why` is another error than that they cannot be encoded, returns
  // it.
  Result<size_t> NoticeOf(const Status& why, std::span<const float> values, size_t begin,
                          std::span<uint8_t> frame) const;
  // Measures a frame of `values`, apart from what was remembered. The error of a contribution
  // counts in the tally.
  Status Measure(Chunk part, Phase phase, std::span<const float> values, Frame frame,
                 ReduceShared::Stage& stage);

  // Waits for what comes from a worker. It is valid until the stage that takes it has returned.
  // Fails if the worker has sent it in another metric than this one has.
  Result<Frame> Take(int rank, Mail mail);
  Status Send(SendQueue& sends, int to, Mail mail, Frame frame);
  Status SendToAll(SendQueue& sends, Mail mail, Frame frame);
  // Keeps a frame of ours until Reduce is done with the bucket.
  void Keep(Frame frame);

  // Decodes a worker's frame, and adds its values times the worker's weight to `sum`. If the
  // frame is a notice, see IsNotice.
  Status AddFrame(int rank, Frame frame, std::span<float> sum, Notice* notice);
  // Whether the frame is a notice. Of several notices the first in their order is kept.
  Result<bool> IsNotice(int rank, Frame frame, Notice* notice) const;
  // Looks for a NaN or infinity in a sum that is the same on all workers.
  Notice FindInSum(std::span<const float> sum, size_t begin) const;
  // Makes the mean of a sum. With weights (ReducerOptions) the sum is the mean already.
  void Divide(std::span<const float> sum, std::span<float> mean) const;
  float weight(int rank) const;

  // Decodes what the owners of the other chunks send into their places. If `finish` is given,
  // it is called with the values of each chunk then.
  Status GatherChunks(const std::function<void(std::span<float>)>& finish = nullptr);

  void Skip(const SkipNotice& notice);
  Status FrameError(int rank, const Status& status) const;

  ReduceShared& shared_;
  BucketState& state_;

 private:
  std::vector<std::array<size_t, kMails>> room_;  // by rank
};

// Makes the strategy for an exchange other than kFactors.
std::unique_ptr<Strategy> MakeStrategy(Exchange exchange, ReduceShared& shared,
                                       BucketState& state);

}  // namespace elastiquant
