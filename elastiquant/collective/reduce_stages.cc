#include "elastiquant/collective/reduce_stages.h"

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

ReduceStages::~ReduceStages() {
  // The buffers go now; the step's outcome is known.
  for (BucketBuffers& buffers : buckets_) (void)AwaitSends(buffers);
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
  EQ_RETURN_IF_ERROR(AwaitSends(buffers));  // its frames may be longer: other buffers
  BucketBuffers fresh = MakeBucketBuffers(std::move(changed), rank_, world_size_);
  fresh.memory = std::move(buffers.memory);
  buffers = std::move(fresh);
  return {};
}

// Of all, whatever comes of some: their buffers may go then.
Status ReduceStages::AwaitSends(BucketBuffers& buffers) {
  Status first_error;
  for (PeerBuffers& peer : buffers.peers) {
    for (auto* send : {&peer.send_contribution, &peer.send_mean, &peer.send_scales}) {
      if (*send == nullptr) continue;
      const Status status = (*send)->Wait().status();
      if (first_error.ok()) first_error = status;
      send->reset();
    }
  }
  return first_error;
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
  for (size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].now = WayOfStep(buckets_[b]);
    const bool parts_come =
        gathers(b) ? buckets_[b].Whole().size > 0 : buckets_[b].own.size > 0;
    for (int n = 1; n < world_size_; ++n) {
      const int r = NthPeer(n);
      PeerBuffers& peer = Peer(b, r);
      if (adds_codes(b) && buckets_[b].Whole().size > 0) {
        peer.receive_scales = comm_->Receive(r, Tag(b, kScales), peer.their_scales.span());
      }
      if (parts_come) {
        peer.receive_part = comm_->Receive(r, Tag(b, kContribute), peer.their_part.span());
      }
      if (!gathers(b) && peer.chunk.size > 0) {
        peer.receive_mean = comm_->Receive(r, Tag(b, kShare), peer.their_mean.span());
      }
    }
  }
  for (std::atomic<bool>& reduced : reduced_) reduced = true;
  step_ = step;
  measuring_ = options_.measure_every > 0 && step % options_.measure_every == 0;
  (void)tally_.TakeSkip();
}

void ReduceStages::Commit() {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (world_size_ > 1 || gathers(b)) buckets_[b].memory.Commit();
  }
}

StreamKey ReduceStages::KeyOf(size_t bucket, Phase phase, int chunk) const {
  const auto n = static_cast<uint64_t>(world_size_);
  const uint64_t message = (2 * bucket + phase) * n + static_cast<uint64_t>(chunk);
  return DeriveKey(options_.seed, step_, static_cast<uint64_t>(rank_), message);
}

// A frame of `values`, or of why there is none.
Result<size_t> ReduceStages::EncodeOrNotice(Workspace& work, size_t bucket,
                                            std::span<const float> values, Chunk part,
                                            Phase phase, int chunk, const FrameBuffer& frame) {
  const Stopwatch watch;
  const StreamKey key = KeyOf(bucket, phase, chunk);
  BucketBuffers& buffers = buckets_[bucket];
  const BucketMemory::Part memory = buffers.memory.PartOf(part);
  Result<size_t> size = buffers.bucket.codec->EncodeNext(values, key, work, frame.span(),
                                                         memory.before(), memory.after());
  tally_.AddSeconds(&ReducerStats::encode_seconds, watch);
  if (size.ok()) return size;
  return NoticeOf(size.status(), bucket, values, part.begin, frame);
}

Result<size_t> ReduceStages::NoticeOf(const Status& why, size_t bucket,
                                      std::span<const float> values, size_t begin,
                                      const FrameBuffer& frame) const {
  if (why.code() != StatusCode::kNonFinite && why.code() != StatusCode::kOutOfRange) return why;
  const auto b = static_cast<uint32_t>(bucket);
  const auto worker = static_cast<uint32_t>(rank_);
  const SkipNotice too_large{b, worker, 0, SkipNotice::Cause::kOutOfRange};
  return WriteSkipNotice(FindNonFinite(values, begin, b, worker).value_or(too_large),
                         frame.span());
}

Status ReduceStages::Encode(size_t bucket) {
  if (gathers(bucket)) return EncodeWhole(bucket);
  if (adds_codes(bucket)) return EncodeCodes(bucket);
  if (scatters(bucket)) return EncodeScattered(bucket);
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    PeerBuffers& peer = Peer(bucket, r);
    if (peer.chunk.size == 0) continue;
    if (peer.send_contribution) EQ_RETURN_IF_ERROR(peer.send_contribution->Wait().status());
    const std::span<const float> values = buckets_[bucket].Part(peer.chunk);
    EQ_ASSIGN_OR_RETURN(const size_t size,
                        EncodeOrNotice(encode_work_, bucket, values, peer.chunk, kContribute, r,
                                       peer.contribution));
    const auto frame = peer.contribution.span().first(size);
    // Before it is sent: afterwards its owner's mean may overwrite the values.
    if (measuring(bucket)) {
      EQ_RETURN_IF_ERROR(
          Measure(bucket, peer.chunk, kContribute, values, frame, &sent_, encode_work_));
    }
    peer.send_contribution = comm_->Send(r, Tag(bucket, kContribute), frame);
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
    options_.on_measured({bucket, part, buffers.bounded(), to->input, to->error, frame});
  }
  return {};
}

Status ReduceStages::Reduce(size_t bucket) {
  if (gathers(bucket)) return ReduceWhole(bucket);
  if (adds_codes(bucket)) return ReduceCodes(bucket);
  return scatters(bucket) ? ReduceScattered(bucket) : ReduceOwnChunk(bucket);
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
  PeerBuffers& peer = Peer(bucket, rank);
  EQ_ASSIGN_OR_RETURN(const auto frame, Take(bucket, rank, peer.their_part, peer.receive_part));
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

Status ReduceStages::AwaitSentMeans(size_t bucket) {
  for (PeerBuffers& peer : buckets_[bucket].peers) {
    if (peer.send_mean) EQ_RETURN_IF_ERROR(peer.send_mean->Wait().status());
  }
  return {};
}

void ReduceStages::SendMean(size_t bucket, std::span<const uint8_t> frame) {
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    Peer(bucket, r).send_mean = comm_->Send(r, Tag(bucket, kShare), frame);
  }
}

Status ReduceStages::ShareMean(size_t bucket, std::span<const float> mean,
                               std::optional<SkipNotice> notice) {
  BucketBuffers& buffers = buckets_[bucket];
  EQ_RETURN_IF_ERROR(AwaitSentMeans(bucket));
  size_t size = 0;
  if (notice) {
    size = WriteSkipNotice(*notice, buffers.own_frame.span());
  } else {
    EQ_ASSIGN_OR_RETURN(size, EncodeOrNotice(reduce_work_, bucket, mean, buffers.own, kShare,
                                             rank_, buffers.own_frame));
  }
  const auto frame = buffers.own_frame.span().first(size);
  SendMean(bucket, frame);
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
  if (options_.on_reduced) options_.on_reduced(bucket, reduced_[bucket]);
  return {};
}

Status ReduceStages::GatherMeans(size_t bucket) {
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    PeerBuffers& peer = Peer(bucket, r);
    if (peer.chunk.size == 0) continue;
    EQ_ASSIGN_OR_RETURN(const auto frame, Take(bucket, r, peer.their_mean, peer.receive_mean));
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

Result<std::span<const uint8_t>> ReduceStages::Take(size_t bucket, int rank,
                                                    const FrameBuffer& buffer,
                                                    std::unique_ptr<Transfer>& receive) {
  Result<size_t> size = receive->Wait();
  receive.reset();
  if (!size.ok()) {
    return size.status().code() == StatusCode::kUnavailable
               ? size.status()
               : FrameError(bucket, rank, size.status());
  }
  return std::span<const uint8_t>(buffer.span().first(*size));
}

Status ReduceStages::FrameError(size_t bucket, int rank, const Status& status) const {
  return {status.code(), "the frame of bucket " + std::to_string(bucket) + " (" +
                             buckets_[bucket].bucket.name + ") from worker " +
                             std::to_string(rank) + ": " + status.message()};
}

}  // namespace elastiquant
