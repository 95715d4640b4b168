#include "elastiquant/collective/gradient_reducer.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/codec/shared_scale.h"
#include "elastiquant/collective/low_rank_reducer.h"
#include "elastiquant/collective/reduce_stages.h"

namespace elastiquant {
namespace {

constexpr size_t kMaxBuckets = (size_t{1} << 24) / 3;  // three tags each
constexpr size_t kStages = 4;

// Runs the stages, each on its thread, over the buckets of a step as they become ready.
class CompressedReducer final : public GradientReducer {
 public:
  CompressedReducer(Communicator* comm, std::vector<GradientBucket> buckets,
                    const ReducerOptions& options);
  ~CompressedReducer() override;

  Status BeginStep(uint64_t step) override;
  Status MarkReady(size_t bucket) override;
  Result<StepOutcome> Finish() override;
  Status SetCodec(size_t bucket, std::shared_ptr<const Codec> codec) override {
    return stages_.SetCodec(bucket, std::move(codec));
  }
  std::vector<std::span<float>> Memory(size_t bucket) override;
  Chunk OwnedChunk(size_t bucket) const override { return stages_.owned_chunk(bucket); }
  ReducerStats TakeStats() override { return stages_.tally().TakeStats(); }

 private:
  using Stage = Status (ReduceStages::*)(size_t bucket);

  static constexpr std::array<Stage, kStages> kStageFunctions{
      &ReduceStages::Announce, &ReduceStages::Encode, &ReduceStages::Reduce,
      &ReduceStages::Gather};

  void Run(size_t stage);
  void Fail(const Status& status);
  bool AwaitReady(size_t bucket, size_t stage);
  void Advance(size_t stage, size_t buckets);

  Communicator* const comm_;
  ReduceStages stages_;
  uint64_t coordinates_ = 0;  // of all buckets

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;  // by bucket
  uint64_t generation_ = 0;  // counts steps begun
  size_t stages_done_ = 0;
  std::array<size_t, kStages> buckets_done_{};  // by stage, in this step
  bool in_step_ = false;
  bool stop_ = false;
  Status error_;

  std::array<std::thread, kStages> threads_;
};

CompressedReducer::CompressedReducer(Communicator* comm, std::vector<GradientBucket> buckets,
                                     const ReducerOptions& options)
    : comm_(comm), stages_(comm, std::move(buckets), options), ready_(stages_.size()) {
  for (size_t b = 0; b < stages_.size(); ++b) coordinates_ += stages_.bucket(b).gradient.size();
  for (size_t s = 0; s < kStages; ++s) {
    threads_[s] = std::thread([this, s] { Run(s); });
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
}

Status CompressedReducer::BeginStep(uint64_t step) {
  std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (in_step_) return Internal("BeginStep was called within a step");
  stages_.BeginStep(step);
  std::fill(ready_.begin(), ready_.end(), false);
  stages_done_ = 0;
  buckets_done_ = {};
  in_step_ = true;
  ++generation_;
  changed_.notify_all();
  return {};
}

Status CompressedReducer::MarkReady(size_t bucket) {
  std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (bucket >= ready_.size() || !in_step_ || ready_[bucket]) {
    return Internal("MarkReady of bucket " + std::to_string(bucket) + " of " +
                    std::to_string(ready_.size()) + ": " +
                    (bucket >= ready_.size() ? "no such bucket"
                     : !in_step_             ? "outside a step"
                                             : "twice in a step"));
  }
  ready_[bucket] = true;
  changed_.notify_all();
  return {};
}

Result<StepOutcome> CompressedReducer::Finish() {
  const Stopwatch watch;
  std::unique_lock lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (!in_step_) return Internal("Finish was called outside a step");
  for (size_t b = 0; b < ready_.size(); ++b) {
    if (ready_[b] || stages_.bucket(b).derived) continue;
    lock.unlock();
    const Status status = Internal("Finish was called before bucket " + std::to_string(b) +
                                   " (" + stages_.bucket(b).name + ") was marked ready");
    Fail(status);
    return status;
  }
  changed_.wait(lock, [&] { return stages_done_ == kStages || !error_.ok(); });
  EQ_RETURN_IF_ERROR(error_);
  in_step_ = false;
  stages_.tally().AddSeconds(&ReducerStats::wait_seconds, watch);
  stages_.tally().AddCoordinates(coordinates_);
  StepOutcome outcome;
  if (const auto skip = stages_.tally().TakeSkip()) {
    outcome.skipped = true;
    const size_t b = skip->bucket;
    outcome.reason = Describe(*skip, b < ready_.size() ? stages_.bucket(b).name : "");
  } else {
    stages_.Commit();
  }
  return outcome;
}

std::vector<std::span<float>> CompressedReducer::Memory(size_t bucket) {
  std::vector<std::span<float>> fields;
  for (size_t f = 0; f < stages_.memory(bucket).fields(); ++f) {
    fields.push_back(stages_.memory(bucket).field(f));
  }
  return fields;
}

void CompressedReducer::Run(size_t s) {
  for (uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || (generation_ != seen && error_.ok()); });
      if (stop_) return;
      seen = generation_;
    }
    Status status;
    for (size_t b = 0; b < stages_.size() && status.ok(); ++b) {
      if (!AwaitReady(b, s)) break;
      status = (stages_.*kStageFunctions[s])(b);
      if (status.ok()) Advance(s, b + 1);  // or the next stage would work on what it left
    }
    if (!status.ok()) Fail(status);
    std::lock_guard lock(mutex_);
    ++stages_done_;
    changed_.notify_all();
  }
}

// False when the step cannot go on.
bool CompressedReducer::AwaitReady(size_t bucket, size_t stage) {
  const bool in_order = stage > 0 && stages_.in_order(bucket);
  const auto ready = [&] {
    return ready_[bucket] && (!in_order || buckets_done_[stage - 1] > bucket);
  };
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready() || !error_.ok() || stop_; });
  return ready() && error_.ok() && !stop_;
}

// Of a step, stage `stage` has done so many buckets.
void CompressedReducer::Advance(size_t stage, size_t buckets) {
  std::lock_guard lock(mutex_);
  buckets_done_[stage] = buckets;
  changed_.notify_all();
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

// Workers that differ here would misread each other's messages.
uint64_t Fingerprint(const std::vector<GradientBucket>& buckets,
                     const ReducerOptions& options) {
  uint64_t mix = Mix64(options.seed ^ Mix64(buckets.size()));
  for (const GradientBucket& bucket : buckets) {
    const std::string spec = bucket.codec->spec();
    const uint32_t crc = Crc32c({reinterpret_cast<const uint8_t*>(spec.data()), spec.size()});
    mix = Mix64(mix ^ Mix64(bucket.gradient.size()) ^ crc);
    mix = Mix64(mix ^ static_cast<uint64_t>(bucket.way()));
  }
  return mix;
}

Status CheckBuckets(const std::vector<GradientBucket>& buckets, const ReducerOptions& options,
                    int world_size) {
  if (options.threads < 1)
    return InvalidArgument("the reducer needs at least one codec thread");
  if (buckets.size() > kMaxBuckets) return InvalidArgument("too many gradient buckets");
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].codec == nullptr) {
      return InvalidArgument("gradient bucket " + std::to_string(b) + " has no codec");
    }
    if (buckets[b].codec->StateFields().size() > BucketMemory::kMaxFields) {
      return Unsupported("codec '" + buckets[b].codec->spec() + "' remembers more than " +
                         std::to_string(BucketMemory::kMaxFields) + " vectors");
    }
    if (buckets[b].codec->has_momentum() && buckets[b].way() == Exchange::kTwoPhase) {
      return InvalidArgument("codec '" + buckets[b].codec->spec() +
                             "' sends velocities, which cannot be encoded twice: its exchange "
                             "must be all-gather");
    }
    const bool cuts_sparse =
        buckets[b].way() == Exchange::kSparseScatter || buckets[b].way() == Exchange::kSparse;
    if (cuts_sparse && buckets[b].codec->exchange() != Exchange::kSparse) {
      return InvalidArgument("codec '" + buckets[b].codec->spec() +
                             "' cannot go by sparse scatter-reduce, which takes the frames of "
                             "sparse codecs with values of 32 or 16 bits, or exact");
    }
    const bool adds_codes = buckets[b].way() == Exchange::kIntegerSum;
    if (adds_codes && (buckets[b].codec->shared_scale() == nullptr ||
                       world_size > SharedScale::kMaxWorkers)) {
      return InvalidArgument("codec '" + buckets[b].codec->spec() +
                             "' cannot go by integer sums, which take the codes of terngrad, "
                             "without |ef or |rotate, of up to " +
                             std::to_string(SharedScale::kMaxWorkers) + " workers");
    }
    if (buckets[b].gradient.size() > kMaxFrameElements) {
      return InvalidArgument("gradient bucket " + std::to_string(b) + " is too long: cut it");
    }
  }
  return {};
}

}  // namespace

ReducerStats& ReducerStats::operator+=(const ReducerStats& other) {
  encode_seconds += other.encode_seconds;
  decode_seconds += other.decode_seconds;
  wait_seconds += other.wait_seconds;
  coordinates += other.coordinates;
  squared_error += other.squared_error;
  squared_norm += other.squared_norm;
  return *this;
}

Result<std::unique_ptr<GradientReducer>> GradientReducer::Create(
    Communicator* comm, std::vector<GradientBucket> buckets, const ReducerOptions& options) {
  EQ_RETURN_IF_ERROR(CheckBuckets(buckets, options, comm->world_size()));
  EQ_ASSIGN_OR_RETURN(const auto prints, comm->AllGather(Fingerprint(buckets, options)));
  for (size_t r = 1; r < prints.size(); ++r) {
    if (prints[r] != prints[0]) {
      return InvalidArgument("worker " + std::to_string(r) +
                             " has other gradient buckets, codecs or seed than worker 0: start "
                             "all workers with the same options");
    }
  }
  const bool factors = std::ranges::any_of(
      buckets, [](const GradientBucket& b) { return b.way() == Exchange::kFactors; });
  if (factors) return MakeLowRankReducer(comm, std::move(buckets), options);
  return std::unique_ptr<GradientReducer>(
      std::make_unique<CompressedReducer>(comm, std::move(buckets), options));
}

}  // namespace elastiquant
