// The stages that every bucket of a gradient passes: announce, encode, reduce, gather. Each
// runs on a thread of its own, so that one bucket is encoded while another is on its way.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "elastiquant/base/workspace.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/exchange/reduce_buffers.h"
#include "elastiquant/exchange/reduce_tally.h"
#include "elastiquant/exchange/send_queue.h"
#include "elastiquant/exchange/skip_notice.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

class ReduceStages {
 public:
  ReduceStages(Communicator* comm, std::vector<GradientBucket> buckets,
               const ReducerOptions& options);

  size_t size() const { return buckets_.size(); }
  const GradientBucket& bucket(size_t index) const { return buckets_[index].bucket; }
  ReduceTally& tally() { return tally_; }

  Status SetCodec(size_t index, std::shared_ptr<const Codec> codec);
  BucketMemory& memory(size_t index) { return buckets_[index].memory; }
  Chunk owned_chunk(size_t index) const {
    return buckets_[index].exchange == Exchange::kTwoPhase ? buckets_[index].own : Chunk{};
  }
  // Whether a stage of a bucket needs the one before to be done with it: where a bucket is
  // encoded as a whole the mean overwrites it, and who is told of a mean must find all of it.
  bool in_order(size_t index) const {
    return buckets_[index].now != Exchange::kTwoPhase || options_.on_reduced;
  }

  // Posts the first receives of a step. No stage may be running.
  void BeginStep(uint64_t step);
  // Whether the next bucket may be encoded though Reduce has not caught up: of a frame that it
  // adds with the others' a copy is kept until then.
  bool may_keep_more() const { return kept_bytes_ <= kMostKeptBytes; }
  // After a step that was not skipped: what the codecs shall remember is remembered.
  void Commit();

  // Each stage takes the buckets one by one, in the same order on every worker, once their
  // gradients are complete. Stages may run beside each other, but none beside itself.
  // Stage 1: the scales of integer sums go to all.
  Status Announce(size_t bucket);
  // Stage 2: our part of every other worker's chunk goes to its owner; or our whole gradient to
  // all.
  Status Encode(size_t bucket);
  // Stage 3: the mean of our chunk, or its sum, goes to everybody. What we keep is what the
  // others decode. Or: the mean of what all workers sent.
  Status Reduce(size_t bucket);
  // Stage 4: the other chunks' means or sums come in.
  Status Gather(size_t bucket);

 private:
  using enum Phase;
  using enum Mail;
  // Messages that find their buffer waiting save a round trip, so those of the next buckets are
  // posted too, as long as those of one kind need no more room than this.
  static constexpr size_t kMostPostedBytes = size_t{16} << 20;
  static constexpr size_t kMostKeptBytes = size_t{8} << 20;

  bool gathers(size_t index) const { return buckets_[index].now == Exchange::kAllGather; }
  bool scatters(size_t index) const { return buckets_[index].now == Exchange::kSparseScatter; }
  bool adds_codes(size_t index) const { return buckets_[index].now == Exchange::kIntegerSum; }
  // Whether the two ways of a sparse bucket are to be compared in this step.
  bool weighing(size_t index) const { return buckets_[index].choice.measuring(); }
  Exchange WayOfStep(BucketBuffers& buffers) const;

  // Of one kind, all receives of the buckets before `next` have been posted.
  struct Posted {
    size_t next = 0;
    size_t bytes = 0;  // the room of those that are not done
  };
  size_t RoomOf(size_t bucket, int rank, Mail mail) const;
  size_t RoomOf(size_t bucket, Mail mail) const;
  // The stage that takes such mail is at this bucket.
  void PostReceives(size_t bucket, Mail mail);
  // It is done with what has come for it.
  void Release(size_t bucket, Mail mail);
  void Keep(size_t bucket, std::span<const uint8_t> frame);

  bool measuring(size_t index) const { return measuring_ && !buckets_[index].bucket.derived; }

  // Of an all-gather.
  Result<std::span<const uint8_t>> EncodeBucket(size_t bucket);
  Status EncodeWhole(size_t bucket);
  Status ReduceWhole(size_t bucket);
  void Divide(std::span<const float> sum, std::span<float> mean) const;
  static std::optional<SkipNotice> FindInSum(size_t bucket, std::span<const float> sum,
                                             size_t begin);

  // Of a sparse scatter-reduce.
  Status EncodeScattered(size_t bucket);
  Status ReduceScattered(size_t bucket);
  Status ShareSum(size_t bucket, std::span<const float> sum,
                  const std::optional<SkipNotice>& notice);
  Status WeighExchanges(size_t bucket, std::span<const std::span<const uint8_t>> frames,
                        std::span<const float> sum);

  // Of integer sums.
  Result<size_t> MeasureScales(size_t bucket);
  Status GatherScales(size_t bucket, std::optional<SkipNotice>* notice);
  Status EncodeCodes(size_t bucket);
  Result<size_t> EncodePartOf(size_t bucket, int chunk, Chunk part, std::span<uint8_t> frame);
  Status ReduceCodes(size_t bucket);
  Status AddCodes(size_t bucket, std::span<float> sums, std::optional<SkipNotice>* notice);
  Status ShareCodes(size_t bucket, std::span<const float> sums,
                    const std::optional<SkipNotice>& notice);

  Status EncodeParts(size_t bucket);
  Status ReduceOwnChunk(size_t bucket);
  Status GatherMeans(size_t bucket);
  Status AddParts(size_t bucket, std::span<float> sum, std::optional<SkipNotice>* notice);
  Status AddPart(size_t bucket, int rank, std::span<float> sum,
                 std::optional<SkipNotice>* notice);
  Status AddFrame(size_t bucket, int rank, std::span<const uint8_t> frame, std::span<float> sum,
                  std::optional<SkipNotice>* notice);
  // Whether the frame is a notice; of several the first in their order is kept.
  Result<bool> IsNotice(size_t bucket, int rank, std::span<const uint8_t> frame,
                        std::optional<SkipNotice>* notice) const;
  Status ShareMean(size_t bucket, std::span<const float> mean,
                   std::optional<SkipNotice> notice);
  Status SendToAll(SendQueue& sends, size_t bucket, Mail mail, std::span<const uint8_t> frame);
  StreamKey KeyOf(size_t bucket, Phase phase, int chunk) const;
  // `part` is where `values` belong in the bucket, `chunk` its number.
  Result<size_t> EncodeOrNotice(Workspace& work, size_t bucket, std::span<const float> values,
                                Chunk part, Phase phase, int chunk, std::span<uint8_t> frame);
  // In place of the frame of `values`, which begin at `begin` of the bucket; `why` there is
  // none.
  Result<size_t> NoticeOf(const Status& why, size_t bucket, std::span<const float> values,
                          size_t begin, std::span<uint8_t> frame) const;
  // What has come from a worker, valid until Release.
  Result<std::span<const uint8_t>> Take(size_t bucket, int rank, Mail mail);
  void Skip(size_t bucket, const SkipNotice& notice);
  Status FrameError(size_t bucket, int rank, const Status& status) const;
  // What a stage needs to measure a frame of its own.
  struct Measurement {
    std::vector<float> input, error;
  };
  // `values` were encoded, apart from what is remembered. The error of a contribution counts in
  // the tally.
  Status Measure(size_t bucket, Chunk part, Phase phase, std::span<const float> values,
                 std::span<const uint8_t> frame, Measurement* to, Workspace& work);

  PeerBuffers& Peer(size_t bucket, int rank) {
    return buckets_[bucket].peers[static_cast<size_t>(rank)];
  }
  const PeerBuffers& Peer(size_t bucket, int rank) const {
    return buckets_[bucket].peers[static_cast<size_t>(rank)];
  }
  // Each worker begins with the next one, so that no link is asked by all at once.
  int NthPeer(int n) const { return (rank_ + n) % world_size_; }
  static uint32_t Tag(size_t bucket, Mail mail) {
    return static_cast<uint32_t>(kMails * bucket) + static_cast<uint32_t>(mail);
  }

  Communicator* const comm_;
  const ReducerOptions options_;
  const int rank_;
  const int world_size_;
  BufferPool kept_;  // BucketBuffers::kept
  std::vector<BucketBuffers> buckets_;
  std::vector<std::atomic<bool>> reduced_;  // by bucket: in this step all could encode it
  std::atomic<size_t> kept_bytes_{0};
  std::array<Posted, kMails> posted_;                 // each of the stage that takes what comes
  SendQueue announced_, contributed_, shared_means_;  // Announce's, Encode's and Reduce's
  FrameScratch encode_frame_, part_frame_, reduce_frame_;  // Encode's two, and Reduce's
  std::vector<float> sum_;                                 // Reduce's
  Measurement sent_, shared_;                              // Encode's and Reduce's
  std::vector<float> decoded_;  // Encode's: what a sparse frame decodes to
  Workspace announce_work_, encode_work_, reduce_work_, gather_work_;
  uint64_t step_ = 0;
  bool measuring_ = false;
  ReduceTally tally_;
};

}  // namespace elastiquant
