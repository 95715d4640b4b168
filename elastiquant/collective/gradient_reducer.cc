#include "elastiquant/collective/gradient_reducer.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/collective/chunk.h"
#include "elastiquant/collective/skip_notice.h"

namespace elastiquant {
namespace {

constexpr size_t kMaxBuckets = size_t{1} << 23;  // two tags each

// Memory whose pages are not touched before they are needed.
struct Buffer {
  explicit Buffer(size_t n = 0) : data(std::make_unique_for_overwrite<uint8_t[]>(n)), size(n) {}
  std::span<uint8_t> span() const { return {data.get(), size}; }
  std::unique_ptr<uint8_t[]> data;
  size_t size;
};

// What one exchange with one peer needs: phase 1 goes to the owner of a chunk, phase 2 back.
struct PeerSlot {
  Chunk chunk;          // the peer's
  Buffer contribution;  // phase 1: our frame of its chunk
  Buffer their_part;    // phase 1: its frame of our chunk
  Buffer their_mean;    // phase 2: its frame of its chunk's mean
  std::unique_ptr<Transfer> send_contribution, send_mean, receive_part, receive_mean;
};

struct Slot {
  GradientBucket bucket;
  Chunk own;
  Buffer mean;                  // phase 2: our frame of our chunk's mean
  std::vector<PeerSlot> peers;  // by rank; our own is empty
  bool ready = false;
};

class CompressedReducer final : public GradientReducer {
 public:
  CompressedReducer(Communicator* comm, std::vector<GradientBucket> buckets,
                    const ReducerOptions& options);
  ~CompressedReducer() override;

  Status BeginStep(uint64_t step) override;
  Status MarkReady(size_t bucket) override;
  Result<StepOutcome> Finish() override;
  ReducerStats TakeStats() override;

 private:
  enum Phase : uint32_t { kContribute = 0, kShare = 1 };
  enum Stage : size_t { kEncode, kReduce, kGather, kStages };
  using StageFunction = Status (CompressedReducer::*)(size_t bucket);

  void Run(StageFunction function);
  void Fail(const Status& status);
  bool AwaitReady(size_t bucket);

  Status EncodeBucket(size_t bucket);
  Status ReduceBucket(size_t bucket);
  Status GatherBucket(size_t bucket);
  Status AddParts(size_t bucket, std::span<float> sum, std::optional<SkipNotice>* notice);
  Status AddPart(size_t bucket, int rank, std::span<float> sum,
                 std::optional<SkipNotice>* notice);
  Status ShareMean(size_t bucket, std::span<const float> mean,
                   std::optional<SkipNotice> notice);
  Result<size_t> EncodeOrNotice(Stage stage, size_t bucket, std::span<const float> values,
                                size_t offset, Phase phase, int chunk, const Buffer& frame);
  Result<std::span<const uint8_t>> Take(size_t bucket, int rank, const Buffer& buffer,
                                        std::unique_ptr<Transfer>& receive);
  Status FrameError(size_t bucket, int rank, const Status& status) const;
  Status Measure(std::span<const uint8_t> frame, std::span<const float> values);
  void Record(const SkipNotice& notice);
  void AddSeconds(double ReducerStats::*field, const Stopwatch& watch);

  std::span<float> Part(size_t bucket, Chunk chunk) const {
    return slots_[bucket].bucket.gradient.subspan(chunk.begin, chunk.size);
  }
  PeerSlot& Peer(size_t bucket, int rank) {
    return slots_[bucket].peers[static_cast<size_t>(rank)];
  }
  // Each worker begins with the next one, so that no link is asked by all at once.
  int NthPeer(int n) const { return (rank_ + n) % world_size_; }
  static uint32_t Tag(size_t bucket, Phase phase) {
    return static_cast<uint32_t>(2 * bucket) + phase;
  }

  Communicator* const comm_;
  const ReducerOptions options_;
  const int rank_;
  const int world_size_;
  std::vector<Slot> slots_;
  std::vector<float> sum_;      // the reducing thread's
  std::vector<float> decoded_;  // the encoding thread's, on measured steps
  std::array<std::unique_ptr<Workspace>, kStages> work_;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t step_ = 0;
  bool measuring_ = false;
  uint64_t generation_ = 0;  // counts steps begun
  size_t stages_done_ = 0;
  bool in_step_ = false;
  bool stop_ = false;
  Status error_;
  std::optional<SkipNotice> skip_;
  ReducerStats stats_;

  std::array<std::thread, kStages> threads_;
};

CompressedReducer::CompressedReducer(Communicator* comm, std::vector<GradientBucket> buckets,
                                     const ReducerOptions& options)
    : comm_(comm),
      options_(options),
      rank_(comm->rank()),
      world_size_(comm->world_size()),
      slots_(buckets.size()) {
  size_t longest_own = 0, longest_other = 0;
  for (size_t b = 0; b < buckets.size(); ++b) {
    Slot& slot = slots_[b];
    slot.bucket = std::move(buckets[b]);
    const size_t n = slot.bucket.gradient.size();
    const auto frame_bytes = [&](Chunk chunk) {
      if (chunk.size == 0 || world_size_ == 1) return size_t{0};
      return std::max(slot.bucket.codec->MaxFrameBytes(chunk.size), kSkipNoticeBytes);
    };
    slot.own = ChunkOf(n, world_size_, rank_);
    slot.mean = Buffer(frame_bytes(slot.own));
    longest_own = std::max(longest_own, slot.own.size);
    slot.peers.resize(static_cast<size_t>(world_size_));
    for (int r = 0; r < world_size_; ++r) {
      if (r == rank_) continue;
      PeerSlot& peer = Peer(b, r);
      peer.chunk = ChunkOf(n, world_size_, r);
      peer.contribution = Buffer(frame_bytes(peer.chunk));
      peer.their_mean = Buffer(frame_bytes(peer.chunk));
      peer.their_part = Buffer(frame_bytes(slot.own));
      longest_other = std::max(longest_other, peer.chunk.size);
    }
  }
  if (world_size_ > 1) sum_.resize(longest_own);
  if (options_.measure_every > 0) decoded_.resize(longest_other);
  for (auto& work : work_) work = std::make_unique<Workspace>(options_.threads);

  const std::array<StageFunction, kStages> functions{&CompressedReducer::EncodeBucket,
                                                     &CompressedReducer::ReduceBucket,
                                                     &CompressedReducer::GatherBucket};
  for (size_t s = 0; s < kStages; ++s) {
    threads_[s] = std::thread([this, f = functions[s]] { Run(f); });
  }
}

CompressedReducer::~CompressedReducer() {
  {
    std::unique_lock lock(mutex_);
    if (in_step_ && error_.ok()) {
      // The stages may wait for peers, and the peers for us.
      lock.unlock();
      Fail(Internal("a gradient reducer was destroyed within a step"));
      lock.lock();
    }
    stop_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  for (Slot& slot : slots_) {
    for (PeerSlot& peer : slot.peers) {
      for (auto* send : {&peer.send_contribution, &peer.send_mean}) {
        if (*send) (void)(*send)->Wait();  // the buffers go now; the step's outcome is known
      }
    }
  }
}

Status CompressedReducer::BeginStep(uint64_t step) {
  std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (in_step_) return Internal("BeginStep was called within a step");
  // Posted before anybody can send: a message that finds its buffer waiting saves a round trip.
  for (size_t b = 0; b < slots_.size(); ++b) {
    slots_[b].ready = false;
    for (int n = 1; n < world_size_; ++n) {
      const int r = NthPeer(n);
      PeerSlot& peer = Peer(b, r);
      if (peer.their_part.size > 0) {
        peer.receive_part = comm_->Receive(r, Tag(b, kContribute), peer.their_part.span());
      }
      if (peer.their_mean.size > 0) {
        peer.receive_mean = comm_->Receive(r, Tag(b, kShare), peer.their_mean.span());
      }
    }
  }
  step_ = step;
  measuring_ = options_.measure_every > 0 && step % options_.measure_every == 0;
  skip_.reset();
  stages_done_ = 0;
  in_step_ = true;
  ++generation_;
  changed_.notify_all();
  return {};
}

Status CompressedReducer::MarkReady(size_t bucket) {
  std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (bucket >= slots_.size() || !in_step_ || slots_[bucket].ready) {
    return Internal("MarkReady of bucket " + std::to_string(bucket) + " of " +
                    std::to_string(slots_.size()) + ": " +
                    (bucket >= slots_.size() ? "no such bucket"
                     : !in_step_             ? "outside a step"
                                             : "twice in a step"));
  }
  slots_[bucket].ready = true;
  changed_.notify_all();
  return {};
}

Result<StepOutcome> CompressedReducer::Finish() {
  const Stopwatch watch;
  std::unique_lock lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (!in_step_) return Internal("Finish was called outside a step");
  for (size_t b = 0; b < slots_.size(); ++b) {
    if (slots_[b].ready) continue;
    lock.unlock();
    const Status status = Internal("Finish was called before bucket " + std::to_string(b) +
                                   " (" + slots_[b].bucket.name + ") was marked ready");
    Fail(status);
    return status;
  }
  changed_.wait(lock, [&] { return stages_done_ == kStages || !error_.ok(); });
  EQ_RETURN_IF_ERROR(error_);
  in_step_ = false;
  stats_.wait_seconds += watch.Seconds();
  for (const Slot& slot : slots_) stats_.coordinates += slot.bucket.gradient.size();
  StepOutcome outcome;
  if (skip_) {
    outcome.skipped = true;
    const size_t b = skip_->bucket;
    outcome.reason = Describe(*skip_, b < slots_.size() ? slots_[b].bucket.name : "");
  }
  return outcome;
}

ReducerStats CompressedReducer::TakeStats() {
  std::lock_guard lock(mutex_);
  return std::exchange(stats_, {});
}

void CompressedReducer::Run(StageFunction function) {
  for (uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || (generation_ != seen && error_.ok()); });
      if (stop_) return;
      seen = generation_;
    }
    Status status;
    for (size_t b = 0; b < slots_.size() && status.ok(); ++b) {
      if (!AwaitReady(b)) break;
      status = (this->*function)(b);
    }
    if (!status.ok()) Fail(status);
    std::lock_guard lock(mutex_);
    ++stages_done_;
    changed_.notify_all();
  }
}

// False when the step cannot go on.
bool CompressedReducer::AwaitReady(size_t bucket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return slots_[bucket].ready || !error_.ok() || stop_; });
  return slots_[bucket].ready && error_.ok() && !stop_;
}

void CompressedReducer::Fail(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (!error_.ok()) return;
    error_ = status;
    changed_.notify_all();
  }
  // A lost worker is known to all; what went wrong here is not.
  if (status.code() != StatusCode::kUnavailable) comm_->Abort(status);
}

void CompressedReducer::AddSeconds(double ReducerStats::*field, const Stopwatch& watch) {
  const double seconds = watch.Seconds();
  std::lock_guard lock(mutex_);
  stats_.*field += seconds;
}

void CompressedReducer::Record(const SkipNotice& notice) {
  std::lock_guard lock(mutex_);
  if (!skip_ || notice < *skip_) skip_ = notice;
}

// Encodes values that begin at coordinate `offset` of the bucket, or says why it cannot be
// done.
Result<size_t> CompressedReducer::EncodeOrNotice(Stage stage, size_t bucket,
                                                 std::span<const float> values, size_t offset,
                                                 Phase phase, int chunk, const Buffer& frame) {
  const Stopwatch watch;
  const auto n = static_cast<uint64_t>(world_size_);
  const uint64_t message = (2 * bucket + phase) * n + static_cast<uint64_t>(chunk);
  const StreamKey key = DeriveKey(options_.seed, step_, static_cast<uint64_t>(rank_), message);
  Result<size_t> size =
      slots_[bucket].bucket.codec->Encode(values, key, *work_[stage], frame.span());
  AddSeconds(&ReducerStats::encode_seconds, watch);
  if (size.ok()) return size;
  const StatusCode code = size.status().code();
  if (code != StatusCode::kNonFinite && code != StatusCode::kOutOfRange) return size;
  const auto b = static_cast<uint32_t>(bucket);
  const auto worker = static_cast<uint32_t>(rank_);
  const SkipNotice too_large{b, worker, 0, SkipNotice::Cause::kOutOfRange};
  return WriteSkipNotice(FindNonFinite(values, offset, b, worker).value_or(too_large),
                         frame.span());
}

// Stage 1: our part of every other worker's chunk goes to its owner.
Status CompressedReducer::EncodeBucket(size_t bucket) {
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    PeerSlot& peer = Peer(bucket, r);
    if (peer.chunk.size == 0) continue;
    if (peer.send_contribution) EQ_RETURN_IF_ERROR(peer.send_contribution->Wait().status());
    const std::span<const float> values = Part(bucket, peer.chunk);
    EQ_ASSIGN_OR_RETURN(const size_t size,
                        EncodeOrNotice(kEncode, bucket, values, peer.chunk.begin, kContribute,
                                       r, peer.contribution));
    const auto frame = peer.contribution.span().first(size);
    // Before it is sent: afterwards its owner's mean may overwrite the values.
    if (measuring_) EQ_RETURN_IF_ERROR(Measure(frame, values));
    peer.send_contribution = comm_->Send(r, Tag(bucket, kContribute), frame);
  }
  return {};
}

Status CompressedReducer::Measure(std::span<const uint8_t> frame,
                                  std::span<const float> values) {
  EQ_ASSIGN_OR_RETURN(const auto notice, ReadSkipNotice(frame));
  if (notice) return {};
  const std::span<float> decoded = std::span(decoded_).first(values.size());
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, *work_[kEncode], decoded));
  double error = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(decoded[i]) - values[i];
    error += difference * difference;
    norm += static_cast<double>(values[i]) * values[i];
  }
  std::lock_guard lock(mutex_);
  stats_.squared_error += error;
  stats_.squared_norm += norm;
  return {};
}

// Stage 2: the mean of our chunk goes to everybody. What we keep is what the others decode.
Status CompressedReducer::ReduceBucket(size_t bucket) {
  const Chunk own = slots_[bucket].own;
  if (own.size == 0) return {};
  std::optional<SkipNotice> notice =
      FindNonFinite(Part(bucket, own), own.begin, static_cast<uint32_t>(bucket),
                    static_cast<uint32_t>(rank_));
  if (world_size_ == 1) {
    if (notice) Record(*notice);
    return {};
  }
  const std::span<float> sum = std::span(sum_).first(own.size);
  EQ_RETURN_IF_ERROR(AddParts(bucket, sum, &notice));
  return ShareMean(bucket, sum, notice);
}

// In the order of ranks, whatever the order of arrival: sums of floats depend on it.
Status CompressedReducer::AddParts(size_t bucket, std::span<float> sum,
                                   std::optional<SkipNotice>* notice) {
  const std::span<const float> own = Part(bucket, slots_[bucket].own);
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

Status CompressedReducer::AddPart(size_t bucket, int rank, std::span<float> sum,
                                  std::optional<SkipNotice>* notice) {
  PeerSlot& peer = Peer(bucket, rank);
  EQ_ASSIGN_OR_RETURN(const auto frame, Take(bucket, rank, peer.their_part, peer.receive_part));
  Result<std::optional<SkipNotice>> theirs = ReadSkipNotice(frame);
  if (!theirs.ok()) return FrameError(bucket, rank, theirs.status());
  if (*theirs) {
    if (!*notice || **theirs < **notice) *notice = *theirs;
    return {};
  }
  const Stopwatch watch;
  const Status status = DecodeAddFrame(frame, 1.0f, *work_[kReduce], sum);
  AddSeconds(&ReducerStats::decode_seconds, watch);
  return status.ok() ? status : FrameError(bucket, rank, status);
}

Status CompressedReducer::ShareMean(size_t bucket, std::span<const float> mean,
                                    std::optional<SkipNotice> notice) {
  Slot& slot = slots_[bucket];
  for (PeerSlot& peer : slot.peers) {
    if (peer.send_mean) EQ_RETURN_IF_ERROR(peer.send_mean->Wait().status());
  }
  size_t size = 0;
  if (notice) {
    size = WriteSkipNotice(*notice, slot.mean.span());
  } else {
    EQ_ASSIGN_OR_RETURN(
        size, EncodeOrNotice(kReduce, bucket, mean, slot.own.begin, kShare, rank_, slot.mean));
  }
  const auto frame = slot.mean.span().first(size);
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    Peer(bucket, r).send_mean = comm_->Send(r, Tag(bucket, kShare), frame);
  }
  EQ_ASSIGN_OR_RETURN(notice, ReadSkipNotice(frame));
  if (notice) {
    Record(*notice);
    return {};
  }
  const Stopwatch watch;
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, *work_[kReduce], Part(bucket, slot.own)));
  AddSeconds(&ReducerStats::decode_seconds, watch);
  return {};
}

// Stage 3: the other chunks' means come in.
Status CompressedReducer::GatherBucket(size_t bucket) {
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    PeerSlot& peer = Peer(bucket, r);
    if (peer.chunk.size == 0) continue;
    EQ_ASSIGN_OR_RETURN(const auto frame, Take(bucket, r, peer.their_mean, peer.receive_mean));
    Result<std::optional<SkipNotice>> notice = ReadSkipNotice(frame);
    if (!notice.ok()) return FrameError(bucket, r, notice.status());
    if (*notice) {
      Record(**notice);
      continue;
    }
    const Stopwatch watch;
    const Status status = DecodeFrame(frame, *work_[kGather], Part(bucket, peer.chunk));
    AddSeconds(&ReducerStats::decode_seconds, watch);
    if (!status.ok()) return FrameError(bucket, r, status);
  }
  return {};
}

Result<std::span<const uint8_t>> CompressedReducer::Take(size_t bucket, int rank,
                                                         const Buffer& buffer,
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

Status CompressedReducer::FrameError(size_t bucket, int rank, const Status& status) const {
  return {status.code(), "the frame of bucket " + std::to_string(bucket) + " (" +
                             slots_[bucket].bucket.name + ") from worker " +
                             std::to_string(rank) + ": " + status.message()};
}

// Workers that differ here would misread each other's messages.
uint64_t Fingerprint(const std::vector<GradientBucket>& buckets,
                     const ReducerOptions& options) {
  uint64_t mix = Mix64(options.seed ^ Mix64(buckets.size()));
  for (const GradientBucket& bucket : buckets) {
    const std::string spec = bucket.codec->spec();
    const uint32_t crc = Crc32c({reinterpret_cast<const uint8_t*>(spec.data()), spec.size()});
    mix = Mix64(mix ^ Mix64(bucket.gradient.size()) ^ crc);
  }
  return mix;
}

Status CheckBuckets(const std::vector<GradientBucket>& buckets, const ReducerOptions& options) {
  if (options.threads < 1)
    return InvalidArgument("the reducer needs at least one codec thread");
  if (buckets.size() > kMaxBuckets) return InvalidArgument("too many gradient buckets");
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].codec == nullptr) {
      return InvalidArgument("gradient bucket " + std::to_string(b) + " has no codec");
    }
    if (buckets[b].gradient.size() > kMaxFrameElements) {
      return InvalidArgument("gradient bucket " + std::to_string(b) + " is too long: cut it");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<GradientReducer>> GradientReducer::Create(
    Communicator* comm, std::vector<GradientBucket> buckets, const ReducerOptions& options) {
  EQ_RETURN_IF_ERROR(CheckBuckets(buckets, options));
  EQ_ASSIGN_OR_RETURN(const auto prints, comm->AllGather(Fingerprint(buckets, options)));
  for (size_t r = 1; r < prints.size(); ++r) {
    if (prints[r] != prints[0]) {
      return InvalidArgument("worker " + std::to_string(r) +
                             " has other gradient buckets, codecs or seed than worker 0: start "
                             "all workers with the same options");
    }
  }
  return std::unique_ptr<GradientReducer>(
      std::make_unique<CompressedReducer>(comm, std::move(buckets), options));
}

}  // namespace elastiquant
