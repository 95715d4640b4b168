#include "elastiquant/exchange/low_rank_reducer.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/exchange/factor_bucket.h"
#include "elastiquant/exchange/reduce_tally.h"

namespace elastiquant {
namespace {

// What an inner bucket carries. The inner reducer has, in this order on every worker: for each
// bucket its P, or the bucket itself; the values without factors; and the Qs, which follow from
// the means of the Ps.
enum class Cargo { kWhole, kP, kDense, kQ };
struct InnerBucket {
  size_t bucket;  // of the outer ones
  Cargo cargo;
};

class LowRankReducer final : public GradientReducer {
 public:
  LowRankReducer(Communicator* comm, std::vector<GradientBucket> buckets,
                 const ReducerOptions& options)
      : comm_(comm),
        options_(options),
        buckets_(std::move(buckets)),
        factors_(buckets_.size()),
        q_index_(buckets_.size()),
        marked_(buckets_.size()),
        metrics_(buckets_.size()),
        p_is_mean_(buckets_.size()),
        project_work_(options.threads),
        gather_work_(options.threads) {}
  ~LowRankReducer() override;

  Status Start();

  Status BeginStep(uint64_t step) override;
  Status MarkReady(size_t bucket, uint16_t metric) override;
  Result<StepOutcome> Finish() override;
  std::vector<std::span<float>> Memory(size_t bucket) override;
  bool FlipMemory() override;
  Status SetCodec(size_t bucket, std::shared_ptr<const Codec> codec) override;
  Chunk OwnedChunk(size_t bucket) const override {
    return factors_[bucket] ? Chunk{} : inner_->OwnedChunk(bucket);
  }
  ReducerStats TakeStats() override;

 private:
  Result<std::vector<GradientBucket>> PlanInner();
  void RunProjections();
  void OnInner(size_t index, bool is_mean);
  void OnP(size_t bucket, bool is_mean);
  void CommitFactors();
  void OnQ(size_t bucket, bool is_mean);
  bool measuring() const {
    return options_.measure_every > 0 && step_ % options_.measure_every == 0;
  }

  Communicator* const comm_;
  const ReducerOptions options_;
  const std::vector<GradientBucket> buckets_;
  std::vector<std::unique_ptr<FactorBucket>> factors_;  // by bucket; null: none
  std::vector<InnerBucket> inner_buckets_;
  std::vector<size_t> q_index_;  // by bucket
  uint64_t coordinates_ = 0;     // of all buckets
  uint64_t steps_ = 0;           // since the last TakeStats()

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> marked_;  // by bucket: in this step
  struct Marked {
    size_t bucket = 0;
    uint16_t metric = 0;
  };
  std::deque<Marked> queue_;  // not yet projected
  bool in_step_ = false;
  bool is_whole_ = false;  // whether the last step came to its end
  bool stop_ = false;
  uint64_t step_ = 0;

  // By bucket, of this step. They are written before the inner reducer is told of the bucket,
  // and read by its last stage.
  std::vector<uint16_t> metrics_;
  std::vector<char> p_is_mean_;  // by bucket; the inner reducer's last stage alone uses it
  Workspace project_work_, gather_work_;
  ReduceTally tally_;
  std::thread projections_;
  std::unique_ptr<GradientReducer> inner_owner_;  // last, to go first
  GradientReducer* inner_ = nullptr;              // its stages call us until it is gone
};

LowRankReducer::~LowRankReducer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (projections_.joinable()) projections_.join();
}

Status LowRankReducer::Start() {
  EQ_ASSIGN_OR_RETURN(std::vector<GradientBucket> inner, PlanInner());
  ReducerOptions options = options_;
  options.on_reduced = [this](size_t index, bool is_mean) { OnInner(index, is_mean); };
  EQ_ASSIGN_OR_RETURN(inner_owner_, GradientReducer::Create(comm_, std::move(inner), options));
  inner_ = inner_owner_.get();
  projections_ = std::thread([this] { RunProjections(); });
  return {};
}

Result<std::vector<GradientBucket>> LowRankReducer::PlanInner() {
  std::vector<GradientBucket> inner;
  const auto add = [&](size_t bucket, Cargo cargo, GradientBucket&& made) {
    inner_buckets_.push_back({bucket, cargo});
    inner.push_back(std::move(made));
  };
  EQ_ASSIGN_OR_RETURN(const auto fp32, MakeCodec("fp32"));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const GradientBucket& bucket = buckets_[b];
    coordinates_ += bucket.gradient.size();
    if (bucket.way() != Exchange::kFactors) {
      add(b, Cargo::kWhole, GradientBucket(bucket));
      continue;
    }
    EQ_ASSIGN_OR_RETURN(FactorPlan plan, bucket.codec->Factors(bucket.gradient.size()));
    EQ_ASSIGN_OR_RETURN(auto codec, MakeCodec(plan.factor_codec));
    factors_[b] =
        std::make_unique<FactorBucket>(bucket.codec, std::move(plan), bucket.gradient);
    add(b, Cargo::kP,
        {factors_[b]->p(), std::move(codec), bucket.name + ", factor P", std::nullopt, true});
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (!factors_[b] || factors_[b]->dense().empty()) continue;
    add(b, Cargo::kDense,
        {factors_[b]->dense(), fp32, buckets_[b].name + ", without factors", std::nullopt,
         true});
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (!factors_[b]) continue;
    q_index_[b] = inner.size();
    EQ_ASSIGN_OR_RETURN(auto codec, MakeCodec(factors_[b]->plan().factor_codec));
    add(b, Cargo::kQ,
        {factors_[b]->q(), std::move(codec), buckets_[b].name + ", factor Q", std::nullopt,
         true});
  }
  return inner;
}

Status LowRankReducer::BeginStep(uint64_t step) {
  {
    const std::lock_guard lock(mutex_);
    step_ = step;
    marked_.assign(marked_.size(), false);
    queue_.clear();
  }
  EQ_RETURN_IF_ERROR(inner_->BeginStep(step));
  const std::lock_guard lock(mutex_);
  in_step_ = true;
  is_whole_ = false;
  return {};
}

Status LowRankReducer::MarkReady(size_t bucket, uint16_t metric) {
  if (bucket < buckets_.size() && !factors_[bucket]) return inner_->MarkReady(bucket, metric);
  const std::lock_guard lock(mutex_);
  if (bucket >= marked_.size() || !in_step_ || marked_[bucket]) {
    return Internal("MarkReady of bucket " + std::to_string(bucket) + " of " +
                    std::to_string(marked_.size()) + ": " +
                    (bucket >= marked_.size() ? "no such bucket"
                     : !in_step_              ? "outside a step"
                                              : "twice in a step"));
  }
  marked_[bucket] = true;
  queue_.push_back({bucket, metric});
  changed_.notify_all();
  return {};
}

// On a thread of its own, as backward must not wait for it.
void LowRankReducer::RunProjections() {
  for (;;) {
    Marked marked;
    StreamKey key;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      marked = queue_.front();
      queue_.pop_front();
      key = DeriveKey(options_.seed, step_, ~uint64_t{0}, marked.bucket);  // no worker's own
    }
    const auto [bucket, metric] = marked;
    metrics_[bucket] = metric;
    const Stopwatch watch;
    factors_[bucket]->Project(key, project_work_);
    tally_.AddSeconds(&ReducerStats::encode_seconds, watch);
    // If the inner reducer has failed, Finish() tells of it.
    (void)inner_->MarkReady(bucket, metric);
    for (size_t i = buckets_.size(); i < inner_buckets_.size(); ++i) {
      const InnerBucket& inner = inner_buckets_[i];
      if (inner.bucket == bucket && inner.cargo == Cargo::kDense)
        (void)inner_->MarkReady(i, metric);
    }
  }
}

// On the thread of the inner reducer's last stage.
void LowRankReducer::OnInner(size_t index, bool is_mean) {
  const auto [bucket, cargo] = inner_buckets_[index];
  switch (cargo) {
    case Cargo::kWhole:
      if (options_.on_reduced) options_.on_reduced(bucket, is_mean);
      break;
    case Cargo::kP:
      OnP(bucket, is_mean);
      break;
    case Cargo::kDense:
      p_is_mean_[bucket] &= is_mean;
      break;
    case Cargo::kQ:
      OnQ(bucket, is_mean);
      break;
  }
}

// The step is lost if P is not a mean, but all wait for Q.
void LowRankReducer::OnP(size_t bucket, bool is_mean) {
  FactorBucket& factors = *factors_[bucket];
  p_is_mean_[bucket] = is_mean;
  if (is_mean) {
    const Stopwatch watch;
    factors.ProjectBack(gather_work_);
    tally_.AddSeconds(&ReducerStats::encode_seconds, watch);
    if (measuring()) {
      const FactorBucket::Error error = factors.Measure();
      tally_.AddError(error.squared_error, error.squared_norm, metrics_[bucket]);
    }
  } else {
    std::ranges::fill(factors.q(), 0.0f);
  }
  (void)inner_->MarkReady(q_index_[bucket]);
}

void LowRankReducer::OnQ(size_t bucket, bool is_mean) {
  const bool whole = is_mean && p_is_mean_[bucket];
  if (whole) {
    const Stopwatch watch;
    factors_[bucket]->Reconstruct(gather_work_);
    tally_.AddSeconds(&ReducerStats::decode_seconds, watch);
  }
  if (options_.on_reduced) options_.on_reduced(bucket, whole);
}

Result<StepOutcome> LowRankReducer::Finish() {
  {
    const std::lock_guard lock(mutex_);
    for (size_t b = 0; b < buckets_.size() && in_step_; ++b) {
      if (!factors_[b] || marked_[b]) continue;
      const Status status = Internal("Finish was called before bucket " + std::to_string(b) +
                                     " (" + buckets_[b].name + ") was marked ready");
      comm_->Abort(status);
      return status;
    }
    in_step_ = false;
  }
  EQ_ASSIGN_OR_RETURN(const StepOutcome outcome, inner_->Finish());
  ++steps_;
  is_whole_ = true;
  if (!outcome.skipped) CommitFactors();
  return outcome;
}

void LowRankReducer::CommitFactors() {
  for (const auto& factors : factors_) {
    if (factors) factors->stream().Commit();
  }
}

bool LowRankReducer::FlipMemory() {
  if (!is_whole_ || !inner_->FlipMemory()) return false;
  CommitFactors();
  return true;
}

std::vector<std::span<float>> LowRankReducer::Memory(size_t bucket) {
  if (!factors_[bucket]) return inner_->Memory(bucket);
  return factors_[bucket]->stream().mutable_fields();
}

Status LowRankReducer::SetCodec(size_t bucket, std::shared_ptr<const Codec> codec) {
  if (!factors_[bucket]) return inner_->SetCodec(bucket, std::move(codec));
  return InvalidArgument("codec '" + codec->spec() + "' cannot follow '" +
                         buckets_[bucket].codec->spec() +
                         "' in a run: the factors of a bucket stay what they are");
}

ReducerStats LowRankReducer::TakeStats() {
  ReducerStats stats = inner_->TakeStats();
  stats += tally_.TakeStats();
  stats.coordinates = std::exchange(steps_, 0) * coordinates_;  // not those of the factors
  return stats;
}

}  // namespace

Result<std::unique_ptr<GradientReducer>> MakeLowRankReducer(Communicator* comm,
                                                            std::vector<GradientBucket> buckets,
                                                            const ReducerOptions& options) {
  auto reducer = std::make_unique<LowRankReducer>(comm, std::move(buckets), options);
  EQ_RETURN_IF_ERROR(reducer->Start());
  return {std::move(reducer)};
}

}  // namespace elastiquant
