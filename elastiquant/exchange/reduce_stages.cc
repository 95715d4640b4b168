#include "elastiquant/exchange/reduce_stages.h"

#include <algorithm>
#include <utility>

#include "elastiquant/exchange/chunk.h"

namespace elastiquant {
namespace {

// Whether no frame of the codec is longer than those of the bucket's ladder, whole or by chunk.
bool HasRoom(const GradientBucket& bucket, const Codec& codec, int world_size) {
  const auto fits = [&](size_t n) {
    return std::ranges::any_of(bucket.ladder, [&](const auto& other) {
      return codec.MaxFrameBytes(n) <= other->MaxFrameBytes(n);
    });
  };
  const size_t n = bucket.gradient.size();
  if (!fits(n)) return false;
  for (int r = 0; r < world_size; ++r) {
    if (!fits(ChunkOf(n, world_size, r).size)) return false;
  }
  return true;
}

}  // namespace

ReduceStages::ReduceStages(Communicator* comm, std::vector<GradientBucket> buckets,
                           const ReducerOptions& options)
    : comm_(comm), shared_(comm, options, &kept_frames_) {
  for (GradientBucket& bucket : buckets) {
    auto slot = std::make_unique<Slot>(slots_.size(), std::move(bucket), comm->world_size());
    slot->strategy = MakeStrategy(slot->state.bucket.way(), shared_, slot->state);
    slots_.push_back(std::move(slot));
  }
}

Status ReduceStages::SetCodec(size_t index, std::shared_ptr<const Codec> codec) {
  Slot& slot = *slots_[index];
  const GradientBucket& before = slot.state.bucket;
  GradientBucket changed = before;
  changed.codec = std::move(codec);
  if (!before.MayTravelUnder(*changed.codec)) {
    return InvalidArgument("codec '" + changed.codec->spec() + "' cannot follow '" +
                           before.codec->spec() +
                           "' in a run: it has another exchange or memory");
  }
  // It may then be this worker's alone: nothing that the workers share may change.
  const bool in_room = HasRoom(before, *changed.codec, shared_.world_size);
  EQ_RETURN_IF_ERROR(slot.state.stream.SetCodec(changed.codec));
  slot.state.bucket = std::move(changed);
  if (in_room) return {};
  slot.strategy = MakeStrategy(slot.state.bucket.way(), shared_, slot.state);
  return {};
}

void ReduceStages::BeginStep(uint64_t step) {
  const uint64_t every = shared_.options.measure_every;
  shared_.step = step;
  shared_.measuring = every > 0 && step % every == 0;
  for (const auto& slot : slots_) {
    slot->strategy->BeginStep();
    slot->state.reduced = true;
  }
  posted_ = {};
  for (const Mail mail : {Mail::kParts, Mail::kMeans, Mail::kScales}) PostReceives(0, mail);
  (void)shared_.tally.TakeSkip();
}

size_t ReduceStages::RoomOf(size_t bucket, Mail mail) const {
  size_t room = 0;
  for (int r = 0; r < shared_.world_size; ++r) {
    room += slots_[bucket]->strategy->Room(r, mail);
  }
  return room;
}

// All workers do this in the same order, and a stage's own bucket is always posted, so that of
// the messages that any worker waits for the first can always be sent.
void ReduceStages::PostReceives(size_t bucket, Mail mail) {
  Posted& posted = posted_[static_cast<size_t>(mail)];
  for (; posted.next < slots_.size(); ++posted.next) {
    Slot& slot = *slots_[posted.next];
    const size_t room = RoomOf(posted.next, mail);
    if (posted.next > bucket && posted.bytes + room > kMostPostedBytes) return;
    posted.bytes += room;
    for (int n = 1; n < shared_.world_size; ++n) {
      const int r = (shared_.rank + n) % shared_.world_size;
      const size_t of_peer = slot.strategy->Room(r, mail);
      if (of_peer == 0) continue;
      slot.state.receives[static_cast<size_t>(r)][static_cast<size_t>(mail)] =
          comm_->Receive(r, TagOf(shared_.options.channel, posted.next, mail), of_peer);
    }
  }
}

void ReduceStages::Release(size_t bucket, Mail mail) {
  for (auto& of_peer : slots_[bucket]->state.receives) {
    of_peer[static_cast<size_t>(mail)].reset();
  }
  posted_[static_cast<size_t>(mail)].bytes -= RoomOf(bucket, mail);
  PostReceives(bucket + 1, mail);
}

void ReduceStages::Commit() {
  for (const auto& slot : slots_) {
    if (slot->strategy->remembers()) slot->state.stream.Commit();
  }
}

Status ReduceStages::Encode(size_t bucket) {
  EQ_RETURN_IF_ERROR(slots_[bucket]->strategy->Encode());
  Release(bucket, Mail::kScales);
  return {};
}

Status ReduceStages::Reduce(size_t bucket) {
  EQ_RETURN_IF_ERROR(slots_[bucket]->strategy->Reduce());
  BufferPool::Buffer& kept = slots_[bucket]->state.kept;
  shared_.kept_bytes -= kept.span().size();
  kept = {};
  Release(bucket, Mail::kParts);
  return {};
}

Status ReduceStages::Gather(size_t bucket) {
  Slot& slot = *slots_[bucket];
  EQ_RETURN_IF_ERROR(slot.strategy->Gather());
  Release(bucket, Mail::kMeans);
  if (shared_.options.on_reduced) shared_.options.on_reduced(bucket, slot.state.reduced);
  return {};
}

}  // namespace elastiquant
