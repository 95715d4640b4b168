#include "elastiquant/exchange/reduce_stages.h"

#include <algorithm>
#include <utility>

#include "elastiquant/base/stopwatch.h"

namespace elastiquant {

ReduceStages::ReduceStages(Communicator* comm, std::vector<GradientBucket> buckets,
                           const ReducerOptions& options)
    : comm_(comm),
      options_(options),
      rank_(comm->rank()),
      world_size_(comm->world_size()),
      reduced_(buckets.size()),
      announced_(comm),
      contributed_(comm),
      shared_means_(comm),
      announce_work_(options.threads),
      encode_work_(options.threads),
      reduce_work_(options.threads),
      gather_work_(options.threads) {
  size_t longest_sum = 0, longest_sparse = 0;
  for (GradientBucket& bucket : buckets) {
    buckets_.push_back(MakeBucketBuffers(std::move(bucket), rank_, world_size_));
    const BucketBuffers& buffers = buckets_.back();
    const bool whole = buffers.exchange != Exchange::kTwoPhase;
    longest_sum = std::max(longest_sum, (whole ? buffers.Whole() : buffers.own).size);
    if (buffers.exchange == Exchange::kSparse || buffers.exchange == Exchange::kSparseScatter) {
      longest_sparse = std::max(longest_sparse, buffers.Whole().size);
    }
  }
  sum_.resize(longest_sum);
  decoded_.resize(longest_sparse);
}

Status ReduceStages::SetCodec(size_t index, std::shared_ptr<const Codec> codec) {
  BucketBuffers& buffers = buckets_[index];
  GradientBucket changed = buffers.bucket;
  changed.codec = std::move(codec);
  if (changed.way() != buffers.exchange ||
      changed.codec->StateFields() != buffers.bucket.codec->StateFields()) {
    return InvalidArgument("codec '" + changed.codec->spec() + "' cannot follow '" +
                           buffers.bucket.codec->spec() +
                           "' in a run: it has another exchange or memory");
  }
  BucketBuffers fresh = MakeBucketBuffers(std::move(changed), rank_, world_size_);
  fresh.memory = std::move(buffers.memory);
  buffers = std::move(fresh);
  return {};
}

// A lone worker keeps what its own frame decodes to.
Exchange ReduceStages::WayOfStep(BucketBuffers& buffers) const {
  const bool sparse = buffers.exchange == Exchange::kSparse;
  if (world_size_ > 1) return sparse ? buffers.choice.Begin() : buffers.exchange;
  const bool exact = sparse || buffers.exchange == Exchange::kSparseScatter ||
                     buffers.exchange == Exchange::kIntegerSum;
  return exact ? Exchange::kAllGather : buffers.exchange;
}

void ReduceStages::BeginStep(uint64_t step) {
  for (BucketBuffers& buffers : buckets_) buffers.now = WayOfStep(buffers);
  posted_ = {};
  for (const Mail mail : {kParts, kMeans, kScales}) PostReceives(0, mail);
  for (std::atomic<bool>& reduced : reduced_) reduced = true;
  step_ = step;
  measuring_ = options_.measure_every > 0 && step % options_.measure_every == 0;
  (void)tally_.TakeSkip();
}

// For what comes from a worker in this step; 0 if nothing does.
size_t ReduceStages::RoomOf(size_t bucket, int rank, Mail mail) const {
  const BucketBuffers& buffers = buckets_[bucket];
  const PeerBuffers& peer = Peer(bucket, rank);
  const bool comes = mail == kScales ? adds_codes(bucket) && buffers.Whole().size > 0
                     : mail == kMeans
                         ? !gathers(bucket) && peer.chunk.size > 0
                         : (gathers(bucket) ? buffers.Whole() : buffers.own).size > 0;
  return comes ? peer.room[static_cast<size_t>(mail)] : 0;
}

size_t ReduceStages::RoomOf(size_t bucket, Mail mail) const {
  size_t room = 0;
  for (int n = 1; n < world_size_; ++n) room += RoomOf(bucket, NthPeer(n), mail);
  return room;
}

// All workers do this in the same order, and a stage's own bucket is always posted, so that of
// the messages that any worker waits for the first can always be sent.
void ReduceStages::PostReceives(size_t bucket, Mail mail) {
  Posted& posted = posted_[static_cast<size_t>(mail)];
  for (; posted.next < buckets_.size(); ++posted.next) {
    const size_t room = RoomOf(posted.next, mail);
    if (posted.next > bucket && posted.bytes + room > kMostPostedBytes) return;
    posted.bytes += room;
    for (int n = 1; n < world_size_; ++n) {
      const int r = NthPeer(n);
      const size_t of_peer = RoomOf(posted.next, r, mail);
      if (of_peer == 0) continue;
      Peer(posted.next, r).receive[static_cast<size_t>(mail)] =
          comm_->Receive(r, Tag(posted.next, mail), of_peer);
    }
  }
}

void ReduceStages::Release(size_t bucket, Mail mail) {
  for (PeerBuffers& peer : buckets_[bucket].peers) {
    peer.receive[static_cast<size_t>(mail)].reset();
  }
  posted_[static_cast<size_t>(mail)].bytes -= RoomOf(bucket, mail);
  PostReceives(bucket + 1, mail);
}

// Until Reduce is done with the bucket.
void ReduceStages::Keep(size_t bucket, std::span<const uint8_t> frame) {
  BufferPool::Buffer& kept = buckets_[bucket].kept;
  kept = kept_.Take(frame.size());
  std::ranges::copy(frame, kept.span().begin());
  kept_bytes_ += frame.size();
}

void ReduceStages::Commit() {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (world_size_ > 1 || gathers(b)) buckets_[b].memory.Commit();
  }
}

StreamKey ReduceStages::KeyOf(size_t bucket, Phase phase, int chunk) const {
  const auto n = static_cast<uint64_t>(world_size_);
  const uint64_t message =
      (2 * bucket + static_cast<uint64_t>(phase)) * n + static_cast<uint64_t>(chunk);
  return DeriveKey(options_.seed, step_, static_cast<uint64_t>(rank_), message);
}

// A frame of `values`, or of why there is none.
Result<size_t> ReduceStages::EncodeOrNotice(Workspace& work, size_t bucket,
                                            std::span<const float> values, Chunk part,
                                            Phase phase, int chunk, std::span<uint8_t> frame) {
  const Stopwatch watch;
  const StreamKey key = KeyOf(bucket, phase, chunk);
  BucketBuffers& buffers = buckets_[bucket];
  const BucketMemory::Part memory = buffers.memory.PartOf(part);
  Result<size_t> size = buffers.codec(phase).EncodeNext(values, key, work, frame,
                                                        memory.before(), memory.after());
  tally_.AddSeconds(&ReducerStats::encode_seconds, watch);
  if (size.ok()) return size;
  return NoticeOf(size.status(), bucket, values, part.begin, frame);
}

Result<size_t> ReduceStages::NoticeOf(const Status& why, size_t bucket,
                                      std::span<const float> values, size_t begin,
                                      std::span<uint8_t> frame) const {
  if (why.code() != StatusCode::kNonFinite && why.code() != StatusCode::kOutOfRange) return why;
  const auto b = static_cast<uint32_t>(bucket);
  const auto worker = static_cast<uint32_t>(rank_);
  const SkipNotice too_large{b, worker, 0, SkipNotice::Cause::kOutOfRange};
  return WriteSkipNotice(FindNonFinite(values, begin, b, worker).value_or(too_large), frame);
}

Status ReduceStages::Encode(size_t bucket) {
  EQ_RETURN_IF_ERROR(gathers(bucket)      ? EncodeWhole(bucket)
                     : adds_codes(bucket) ? EncodeCodes(bucket)
                     : scatters(bucket)   ? EncodeScattered(bucket)
                                          : EncodeParts(bucket));
  Release(bucket, kScales);
  return {};
}

// Of every other worker's chunk.
Status ReduceStages::EncodeParts(size_t bucket) {
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    PeerBuffers& peer = Peer(bucket, r);
    if (peer.chunk.size == 0) continue;
    const std::span<const float> values = buckets_[bucket].Part(peer.chunk);
    const std::span<uint8_t> room = encode_frame_.AtLeast(peer.contribution_room);
    EQ_ASSIGN_OR_RETURN(const size_t size, EncodeOrNotice(encode_work_, bucket, values,
                                                          peer.chunk, kContribute, r, room));
    const auto frame = room.first(size);
    // Before it is sent: afterwards its owner's mean may overwrite the values.
    if (measuring(bucket)) {
      EQ_RETURN_IF_ERROR(
          Measure(bucket, peer.chunk, kContribute, values, frame, &sent_, encode_work_));
    }
    EQ_RETURN_IF_ERROR(contributed_.Send(r, Tag(bucket, kParts), frame));
  }
  return {};
}

Status ReduceStages::Measure(size_t bucket, Chunk part, Phase phase,
                             std::span<const float> values, std::span<const uint8_t> frame,
                             Measurement* to, Workspace& work) {
  EQ_ASSIGN_OR_RETURN(const auto notice, ReadSkipNotice(frame));
  if (notice) return {};
  BucketBuffers& buffers = buckets_[bucket];
  to->input.resize(part.size);
  to->error.resize(part.size);
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, work, to->error));
  std::span<const float> residual;  // what was encoded, less what it decodes to
  if (buffers.residual) residual = buffers.memory.PartOf(part).after()[*buffers.residual];
  double error = 0, norm = 0;
  for (size_t i = 0; i < part.size; ++i) {
    const double sent = to->error[i];
    const double lost = residual.empty() ? values[i] - sent : static_cast<double>(residual[i]);
    error += lost * lost;
    norm += (sent + lost) * (sent + lost);
    to->input[i] = static_cast<float>(sent + lost);
    to->error[i] = static_cast<float>(lost);
  }
  if (phase == kContribute) tally_.AddError(error, norm);
  if (options_.on_measured) {
    options_.on_measured({bucket, part, buffers.bounded(phase), to->input, to->error, frame});
  }
  return {};
}

Status ReduceStages::Reduce(size_t bucket) {
  EQ_RETURN_IF_ERROR(gathers(bucket)      ? ReduceWhole(bucket)
                     : adds_codes(bucket) ? ReduceCodes(bucket)
                     : scatters(bucket)   ? ReduceScattered(bucket)
                                          : ReduceOwnChunk(bucket));
  kept_bytes_ -= buckets_[bucket].kept.span().size();
  buckets_[bucket].kept = {};
  Release(bucket, kParts);
  return {};
}

Status ReduceStages::ReduceOwnChunk(size_t bucket) {
  const Chunk own = buckets_[bucket].own;
  if (own.size == 0) return {};
  std::optional<SkipNotice> notice =
      FindNonFinite(buckets_[bucket].Part(own), own.begin, static_cast<uint32_t>(bucket),
                    static_cast<uint32_t>(rank_));
  if (world_size_ == 1) {
    if (notice) Skip(bucket, *notice);
    return {};
  }
  const std::span<float> sum = std::span(sum_).first(own.size);
  EQ_RETURN_IF_ERROR(AddParts(bucket, sum, &notice));
  return ShareMean(bucket, sum, notice);
}

// In the order of ranks, whatever the order of arrival: sums of floats depend on it.
Status ReduceStages::AddParts(size_t bucket, std::span<float> sum,
                              std::optional<SkipNotice>* notice) {
  const std::span<const float> own = buckets_[bucket].Part(buckets_[bucket].own);
  std::fill(sum.begin(), sum.end(), 0.0f);
  for (int r = 0; r < world_size_; ++r) {
    if (r != rank_) {
      EQ_RETURN_IF_ERROR(AddPart(bucket, r, sum, notice));
    } else {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
    }
  }
  const auto n = static_cast<float>(world_size_);
  for (float& v : sum) v /= n;
  return {};
}

Status ReduceStages::AddPart(size_t bucket, int rank, std::span<float> sum,
                             std::optional<SkipNotice>* notice) {
  EQ_ASSIGN_OR_RETURN(const auto frame, Take(bucket, rank, kParts));
  return AddFrame(bucket, rank, frame, sum, notice);
}

Status ReduceStages::AddFrame(size_t bucket, int rank, std::span<const uint8_t> frame,
                              std::span<float> sum, std::optional<SkipNotice>* notice) {
  EQ_ASSIGN_OR_RETURN(const bool skips, IsNotice(bucket, rank, frame, notice));
  if (skips) return {};
  const Stopwatch watch;
  const Status status = DecodeAddFrame(frame, 1.0f, reduce_work_, sum);
  tally_.AddSeconds(&ReducerStats::decode_seconds, watch);
  return status.ok() ? status : FrameError(bucket, rank, status);
}

Result<bool> ReduceStages::IsNotice(size_t bucket, int rank, std::span<const uint8_t> frame,
                                    std::optional<SkipNotice>* notice) const {
  const Result<std::optional<SkipNotice>> theirs = ReadSkipNotice(frame);
  if (!theirs.ok()) return FrameError(bucket, rank, theirs.status());
  if (!*theirs) return false;
  if (!*notice || **theirs < **notice) *notice = *theirs;
  return true;
}

Status ReduceStages::SendToAll(SendQueue& sends, size_t bucket, Mail mail,
                               std::span<const uint8_t> frame) {
  for (int n = 1; n < world_size_; ++n) {
    EQ_RETURN_IF_ERROR(sends.Send(NthPeer(n), Tag(bucket, mail), frame));
  }
  return {};
}

Status ReduceStages::ShareMean(size_t bucket, std::span<const float> mean,
                               std::optional<SkipNotice> notice) {
  BucketBuffers& buffers = buckets_[bucket];
  const std::span<uint8_t> room = reduce_frame_.AtLeast(buffers.own_room);
  size_t size = 0;
  if (notice) {
    size = WriteSkipNotice(*notice, room);
  } else {
    EQ_ASSIGN_OR_RETURN(
        size, EncodeOrNotice(reduce_work_, bucket, mean, buffers.own, kShare, rank_, room));
  }
  const auto frame = room.first(size);
  EQ_RETURN_IF_ERROR(SendToAll(shared_means_, bucket, kMeans, frame));
  EQ_ASSIGN_OR_RETURN(notice, ReadSkipNotice(frame));
  if (notice) {
    Skip(bucket, *notice);
    return {};
  }
  if (measuring(bucket) && options_.on_measured) {
    EQ_RETURN_IF_ERROR(
        Measure(bucket, buffers.own, kShare, mean, frame, &shared_, reduce_work_));
  }
  const Stopwatch watch;
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, reduce_work_, buffers.Part(buffers.own)));
  tally_.AddSeconds(&ReducerStats::decode_seconds, watch);
  return {};
}

// Two stages may find something at once.
void ReduceStages::Skip(size_t bucket, const SkipNotice& notice) {
  reduced_[bucket] = false;
  tally_.Skip(notice);
}

Status ReduceStages::Gather(size_t bucket) {
  if (!gathers(bucket)) EQ_RETURN_IF_ERROR(GatherMeans(bucket));
  Release(bucket, kMeans);
  if (options_.on_reduced) options_.on_reduced(bucket, reduced_[bucket]);
  return {};
}

Status ReduceStages::GatherMeans(size_t bucket) {
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    PeerBuffers& peer = Peer(bucket, r);
    if (peer.chunk.size == 0) continue;
    EQ_ASSIGN_OR_RETURN(const auto frame, Take(bucket, r, kMeans));
    Result<std::optional<SkipNotice>> notice = ReadSkipNotice(frame);
    if (!notice.ok()) return FrameError(bucket, r, notice.status());
    if (*notice) {
      Skip(bucket, **notice);
      continue;
    }
    const Stopwatch watch;
    const std::span<float> part = buckets_[bucket].Part(peer.chunk);
    const Status status = DecodeFrame(frame, gather_work_, part);
    if (scatters(bucket)) Divide(part, part);
    tally_.AddSeconds(&ReducerStats::decode_seconds, watch);
    if (!status.ok()) return FrameError(bucket, r, status);
  }
  return {};
}

Result<std::span<const uint8_t>> ReduceStages::Take(size_t bucket, int rank, Mail mail) {
  Incoming& receive = *Peer(bucket, rank).receive[static_cast<size_t>(mail)];
  const Status status = receive.Wait().status();
  if (status.ok()) return receive.bytes();
  return status.code() == StatusCode::kUnavailable ? status : FrameError(bucket, rank, status);
}

Status ReduceStages::FrameError(size_t bucket, int rank, const Status& status) const {
  return {status.code(), "the frame of bucket " + std::to_string(bucket) + " (" +
                             buckets_[bucket].bucket.name + ") from worker " +
                             std::to_string(rank) + ": " + status.message()};
}

}  // namespace elastiquant
