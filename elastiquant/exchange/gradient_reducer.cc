#include "elastiquant/exchange/gradient_reducer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/exchange/bucket_pieces.h"
#include "elastiquant/exchange/exchange_choice.h"
#include "elastiquant/exchange/low_rank_reducer.h"
#include "elastiquant/exchange/reduce_stages.h"

namespace elastiquant {
namespace {

constexpr size_t kMaxBuckets = kTagsOfChannel / kMails;
enum StageNumber : size_t { kAnnounce, kEncode, kReduce, kGather, kStages };

// Runs the stages, each on its thread, over the buckets of a step as they become ready: of
// large ones over their pieces.
class CompressedReducer final : public GradientReducer {
 public:
  CompressedReducer(Communicator* comm, const std::vector<GradientBucket>& buckets,
                    const ReducerOptions& options);
  ~CompressedReducer() override;

  Status BeginStep(uint64_t step) override;
  Status MarkReady(size_t bucket, uint16_t metric) override;
  Result<StepOutcome> Finish() override;
  Status SetCodec(size_t bucket, std::shared_ptr<const Codec> codec) override;
  std::vector<std::span<float>> Memory(size_t bucket) override;
  bool FlipMemory() override;
  // A bucket of more than one piece has no memory.
  Chunk OwnedChunk(size_t bucket) const override {
    return stages_.owned_chunk(pieces_.first(bucket));
  }
  ReducerStats TakeStats() override { return stages_.tally().TakeStats(); }

 private:
  using Stage = Status (ReduceStages::*)(size_t bucket);

  static constexpr std::array<Stage, kStages> kStageFunctions{
      &ReduceStages::Announce, &ReduceStages::Encode, &ReduceStages::Reduce,
      &ReduceStages::Gather};

  ReducerOptions OfPieces(ReducerOptions options);
  void Run(size_t stage);
  void Fail(const Status& status);
  bool AwaitReady(size_t piece, size_t stage);
  void Advance(size_t stage, size_t pieces);

  Communicator* const comm_;
  const BucketPieces pieces_;
  bool is_mean_ = true;       // the pieces of this bucket so far; of the last stage
  ReduceStages stages_;       // whose buckets are the pieces
  uint64_t coordinates_ = 0;  // of all buckets

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;  // by bucket
  uint64_t generation_ = 0;  // counts steps begun
  size_t stages_done_ = 0;
  size_t stages_at_work_ = 0;
  std::array<size_t, kStages> pieces_done_{};  // by stage, in this step
  bool in_step_ = false;
  bool stop_ = false;
  Status error_;

  std::array<std::thread, kStages> threads_;
};

CompressedReducer::CompressedReducer(Communicator* comm,
                                     const std::vector<GradientBucket>& buckets,
                                     const ReducerOptions& options)
    : comm_(comm),
      pieces_(buckets),
      stages_(comm, pieces_.Cut(buckets), OfPieces(options)),
      ready_(buckets.size()) {
  for (size_t b = 0; b < stages_.size(); ++b) coordinates_ += stages_.bucket(b).gradient.size();
  for (size_t s = 0; s < kStages; ++s) {
    threads_[s] = std::thread([this, s] { Run(s); });
  }
}

// Whose callbacks tell of pieces; those that were given, of buckets.
ReducerOptions CompressedReducer::OfPieces(ReducerOptions options) {
  if (options.on_measured) {
    options.on_measured = [this, tell = std::move(options.on_measured)](MeasuredMessage m) {
      const BucketPiece& piece = pieces_[m.bucket];
      m.bucket = piece.bucket;
      m.part.begin += piece.part.begin;
      tell(m);
    };
  }
  if (options.on_reduced) {
    options.on_reduced = [this, tell = std::move(options.on_reduced)](size_t p, bool is_mean) {
      const size_t bucket = pieces_[p].bucket;
      is_mean_ = is_mean && (is_mean_ || p == pieces_.first(bucket));
      if (p + 1 == pieces_.end(bucket)) tell(bucket, is_mean_);
    };
  }
  return options;
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
  pieces_done_ = {};
  in_step_ = true;
  ++generation_;
  changed_.notify_all();
  return {};
}

Status CompressedReducer::MarkReady(size_t bucket, uint16_t metric) {
  std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (bucket >= ready_.size() || !in_step_ || ready_[bucket]) {
    return Internal("MarkReady of bucket " + std::to_string(bucket) + " of " +
                    std::to_string(ready_.size()) + ": " +
                    (bucket >= ready_.size() ? "no such bucket"
                     : !in_step_             ? "outside a step"
                                             : "twice in a step"));
  }
  for (size_t p = pieces_.first(bucket); p < pieces_.end(bucket); ++p) {
    stages_.SetMetric(p, metric);
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
    const GradientBucket& first = stages_.bucket(pieces_.first(b));
    if (ready_[b] || first.derived) continue;
    lock.unlock();
    const Status status = Internal("Finish was called before bucket " + std::to_string(b) +
                                   " (" + first.name + ") was marked ready");
    Fail(status);
    return status;
  }
  changed_.wait(lock, [&] { return stages_done_ == kStages || !error_.ok(); });
  EQ_RETURN_IF_ERROR(error_);
  in_step_ = false;
  stages_.tally().AddSeconds(&ReducerStats::wait_seconds, watch);
  stages_.tally().AddCoordinates(coordinates_);
  StepOutcome outcome;
  if (auto skip = stages_.tally().TakeSkip()) {
    outcome.skipped = true;
    std::string name;
    if (skip->bucket < pieces_.count()) {
      const BucketPiece& piece = pieces_[skip->bucket];
      name = stages_.bucket(skip->bucket).name;
      skip->bucket = static_cast<uint32_t>(piece.bucket);
      skip->coordinate += piece.part.begin;
    }
    outcome.reason = Describe(*skip, name);
  } else {
    stages_.Commit();
  }
  return outcome;
}

Status CompressedReducer::SetCodec(size_t bucket, std::shared_ptr<const Codec> codec) {
  for (size_t p = pieces_.first(bucket); p < pieces_.end(bucket); ++p) {
    EQ_RETURN_IF_ERROR(stages_.SetCodec(p, codec));
  }
  return {};
}

std::vector<std::span<float>> CompressedReducer::Memory(size_t bucket) {
  return stages_.stream(pieces_.first(bucket)).mutable_fields();
}

// Streams keep both versions. After an error some stages may still be at work, and others never
// begin.
bool CompressedReducer::FlipMemory() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stages_at_work_ == 0; });
  stages_.Commit();
  return true;
}

void CompressedReducer::Run(size_t s) {
  for (uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || (generation_ != seen && error_.ok()); });
      if (stop_) return;
      seen = generation_;
      ++stages_at_work_;
    }
    Status status;
    for (size_t p = 0; p < stages_.size() && status.ok(); ++p) {
      if (!AwaitReady(p, s)) break;
      status = (stages_.*kStageFunctions[s])(p);
      // After an error the next stage would work on a piece that is not complete.
      if (status.ok()) Advance(s, p + 1);
    }
    if (!status.ok()) Fail(status);
    std::lock_guard lock(mutex_);
    ++stages_done_;
    --stages_at_work_;
    changed_.notify_all();
  }
}

// False when the step cannot go on.
bool CompressedReducer::AwaitReady(size_t piece, size_t stage) {
  const bool in_order = stage > 0 && stages_.in_order(piece);
  const auto ready = [&] {
    return ready_[pieces_[piece].bucket] && (!in_order || pieces_done_[stage - 1] > piece) &&
           (stage != kEncode || stages_.may_keep_more() || pieces_done_[kReduce] >= piece);
  };
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready() || !error_.ok() || stop_; });
  return ready() && error_.ok() && !stop_;
}

// Of a step, stage `stage` has done so many pieces.
void CompressedReducer::Advance(size_t stage, size_t pieces) {
  std::lock_guard lock(mutex_);
  pieces_done_[stage] = pieces;
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

// The codecs that frames of a bucket may come from, the same on all workers.
std::string SpecsOf(const GradientBucket& bucket) {
  std::set<std::string> specs{bucket.codec->spec()};
  for (const auto& codec : bucket.ladder) specs.insert(codec->spec());
  std::string text;
  for (const std::string& spec : specs) text += (text.empty() ? "" : ";") + spec;
  return text + (bucket.down ? ">" + bucket.down->spec() : "");
}

// Workers that differ here would misread each other's messages.
uint64_t Fingerprint(const std::vector<GradientBucket>& buckets,
                     const ReducerOptions& options) {
  uint64_t mix = Mix64(options.seed ^ Mix64(buckets.size()));
  for (const double weight : options.weights)
    mix = Mix64(mix ^ std::bit_cast<uint64_t>(weight));
  for (const GradientBucket& bucket : buckets) {
    const std::string spec = SpecsOf(bucket);
    const uint32_t crc = Crc32c({reinterpret_cast<const uint8_t*>(spec.data()), spec.size()});
    mix = Mix64(mix ^ Mix64(bucket.gradient.size()) ^ crc);
    mix = Mix64(mix ^ static_cast<uint64_t>(bucket.way()));
  }
  return mix;
}

Status CheckLadder(const GradientBucket& bucket, int world_size) {
  if (bucket.ladder.empty()) return {};
  const Exchange way = bucket.way();
  if (way == Exchange::kFactors || way == Exchange::kIntegerSum) {
    return InvalidArgument("codec '" + bucket.codec->spec() + "' goes by " +
                           std::string(ExchangeName(way)) +
                           ", where all workers need one codec: give it no ladder");
  }
  for (const auto& codec : bucket.ladder) {
    EQ_RETURN_IF_ERROR(CheckExchange(*codec, bucket.down.get(), way, world_size));
    if (bucket.MayTravelUnder(*codec)) continue;
    return InvalidArgument("codecs '" + bucket.codec->spec() + "' and '" + codec->spec() +
                           "' cannot be on one ladder: they have another exchange or memory");
  }
  return {};
}

Status CheckWeights(const std::vector<GradientBucket>& buckets,
                    const std::vector<double>& weights, int world_size) {
  if (weights.empty()) return {};
  if (weights.size() != static_cast<size_t>(world_size)) {
    return InvalidArgument("there are " + std::to_string(weights.size()) + " weights for " +
                           std::to_string(world_size) + " workers");
  }
  double sum = 0;
  for (const double weight : weights) sum += weight >= 0 ? weight : std::nan("");
  if (!(sum > 0) || !std::isfinite(sum)) {
    return InvalidArgument("the workers' weights must be finite, none below 0 and some above");
  }
  for (const GradientBucket& bucket : buckets) {
    if (bucket.way() != Exchange::kIntegerSum) continue;
    return InvalidArgument("codec '" + bucket.codec->spec() +
                           "' goes by integer sums, in which all workers weigh the same: give "
                           "no weights, or another exchange");
  }
  return {};
}

std::vector<double> Normalised(std::vector<double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

Status CheckBuckets(const std::vector<GradientBucket>& buckets, const ReducerOptions& options,
                    int world_size) {
  EQ_RETURN_IF_ERROR(CheckWeights(buckets, options.weights, world_size));
  if (options.threads < 1)
    return InvalidArgument("the reducer needs at least one codec thread");
  if (options.channel >= kMaxChannels) {
    return InvalidArgument("there is no channel " + std::to_string(options.channel) + " of " +
                           std::to_string(kMaxChannels));
  }
  if (buckets.size() > kMaxBuckets) return InvalidArgument("too many gradient buckets");
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].codec == nullptr) {
      return InvalidArgument("gradient bucket " + std::to_string(b) + " has no codec");
    }
    if (buckets[b].codec->StateFields().size() > CodecStream::kMaxFields) {
      return Unsupported("codec '" + buckets[b].codec->spec() + "' remembers more than " +
                         std::to_string(CodecStream::kMaxFields) + " vectors");
    }
    EQ_RETURN_IF_ERROR(
        CheckExchange(*buckets[b].codec, buckets[b].down.get(), buckets[b].way(), world_size));
    EQ_RETURN_IF_ERROR(CheckLadder(buckets[b], world_size));
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
  squared_error_in_metric += other.squared_error_in_metric;
  squared_norm_in_metric += other.squared_norm_in_metric;
  return *this;
}

Result<std::unique_ptr<GradientReducer>> GradientReducer::Create(
    Communicator* comm, std::vector<GradientBucket> buckets, const ReducerOptions& given) {
  EQ_RETURN_IF_ERROR(CheckBuckets(buckets, given, comm->world_size()));
  ReducerOptions options = given;
  options.weights = Normalised(options.weights);
  EQ_ASSIGN_OR_RETURN(const auto prints, comm->AllGather(Fingerprint(buckets, options)));
  for (size_t r = 1; r < prints.size(); ++r) {
    if (prints[r] != prints[0]) {
      return InvalidArgument(comm->names()(static_cast<int>(r)) +
                             " has other gradient buckets, codecs, weights or seed than " +
                             comm->names()(0) + ": start all workers with the same options");
    }
  }
  const bool factors = std::ranges::any_of(
      buckets, [](const GradientBucket& b) { return b.way() == Exchange::kFactors; });
  if (factors) return MakeLowRankReducer(comm, std::move(buckets), options);
  return std::unique_ptr<GradientReducer>(
      std::make_unique<CompressedReducer>(comm, buckets, options));
}

}  // namespace elastiquant
