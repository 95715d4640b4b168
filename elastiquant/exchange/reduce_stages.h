// The stages that every bucket of a gradient passes: announce, encode, reduce, gather. Each
// runs on a thread of its own, so that one bucket is encoded while another is on its way. What
// a stage does with a bucket is its Strategy's.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "elastiquant/exchange/reduce_shared.h"
#include "elastiquant/exchange/strategy.h"

namespace elastiquant {

class ReduceStages {
 public:
  ReduceStages(Communicator* comm, std::vector<GradientBucket> buckets,
               const ReducerOptions& options);

  size_t size() const { return slots_.size(); }
  const GradientBucket& bucket(size_t index) const { return slots_[index]->state.bucket; }
  ReduceTally& tally() { return shared_.tally; }

  Status SetCodec(size_t index, std::shared_ptr<const Codec> codec);
  CodecStream& stream(size_t index) { return slots_[index]->state.stream; }
  Chunk owned_chunk(size_t index) const { return slots_[index]->strategy->owned_chunk(); }
  // Whether a stage of a bucket needs the one before to be done with it: where a bucket is
  // encoded as a whole the mean overwrites it, and who is told of a mean must find all of it.
  bool in_order(size_t index) const {
    return !slots_[index]->strategy->may_overlap() || shared_.options.on_reduced;
  }

  // Names the metric of a bucket in this step. No stage may have come to it.
  void SetMetric(size_t index, uint16_t metric) { slots_[index]->state.metric = metric; }

  // Posts the first receives of a step. No stage may be running.
  void BeginStep(uint64_t step);
  // Whether the next bucket may be encoded though Reduce has not caught up: of a frame that it
  // adds with the others' a copy is kept until then.
  bool may_keep_more() const { return shared_.kept_bytes <= kMostKeptBytes; }
  // Makes the codecs remember what they shall. Called after a step that was not skipped.
  void Commit();

  // Each stage takes the buckets one by one, in the same order on every worker, once their
  // gradients are complete. Stages may run beside each other, but none beside itself.
  Status Announce(size_t bucket) { return slots_[bucket]->strategy->Announce(); }
  Status Encode(size_t bucket);
  Status Reduce(size_t bucket);
  Status Gather(size_t bucket);

 private:
  // Messages that find their buffer waiting save a round trip, so those of the next buckets are
  // posted too, as long as those of one kind need no more room than this.
  static constexpr size_t kMostPostedBytes = size_t{16} << 20;
  static constexpr size_t kMostKeptBytes = size_t{8} << 20;

  struct Slot {
    Slot(size_t index, GradientBucket bucket, int world_size)
        : state(index, std::move(bucket), world_size) {}
    BucketState state;
    std::unique_ptr<Strategy> strategy;
  };
  // For one kind of mail: which receives have been posted. Those of all buckets before `next`
  // have.
  struct Posted {
    size_t next = 0;
    size_t bytes = 0;  // the room of those that are not done
  };

  size_t RoomOf(size_t bucket, Mail mail) const;
  // Posts receives from this bucket on. The stage that takes such mail has come to it.
  void PostReceives(size_t bucket, Mail mail);
  // Lets go of what has come for this bucket, which the stage is done with.
  void Release(size_t bucket, Mail mail);

  Communicator* const comm_;
  BufferPool kept_frames_;
  std::vector<std::unique_ptr<Slot>> slots_;
  ReduceShared shared_;                // goes first: it waits for what is being sent
  std::array<Posted, kMails> posted_;  // each of the stage that takes what comes
};

}  // namespace elastiquant
