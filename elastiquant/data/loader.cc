#include "elastiquant/data/loader.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/data/own_share.h"
#include "elastiquant/data/train_order.h"

namespace elastiquant {
namespace {

Status CheckOptions(const LoaderOptions& options) {
  if (options.batch < 1) {
    return InvalidArgument("a batch has at least 1 sample, not " +
                           std::to_string(options.batch));
  }
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return InvalidArgument("there is no rank " + std::to_string(options.rank) + " of " +
                           std::to_string(options.world_size));
  }
  if (options.threads < 1 || options.prefetch < 1) {
    return InvalidArgument("a loader needs at least 1 thread and 1 batch of prefetch");
  }
  return Status::Ok();
}

struct Plan {
  Split split = Split::kTrain;
  bool augment = false;
  std::vector<PlannedSample> samples{};
};

at::Tensor EmptyImages(const DatasetInfo& info, int64_t batch) {
  return at::empty({batch, info.channels, info.image_size, info.image_size},
                   at::TensorOptions(at::kFloat).memory_format(at::MemoryFormat::ChannelsLast));
}

// A batch's memory: filled by a worker, used by the caller, then filled again.
class Slot {
 public:
  Slot(const DatasetInfo& info, int64_t batch)
      : floats_(info.floats_per_sample()),
        inputs_(info.context > 0 ? at::empty({batch, floats_}) : EmptyImages(info, batch)),
        labels_(at::empty({batch}, at::kLong)) {}

  Status Fill(const Dataset& dataset, const Plan& plan) {
    used_ = static_cast<int64_t>(plan.samples.size());
    samples_ = plan.samples;
    float* out = inputs_.data_ptr<float>();
    auto* labels = labels_.data_ptr<int64_t>();
    for (const PlannedSample& sample : plan.samples) {
      EQ_ASSIGN_OR_RETURN(*labels++, dataset.Read(plan.split, sample.index,
                                                  plan.augment ? &sample.augment : nullptr,
                                                  {out, static_cast<size_t>(floats_)}));
      out += floats_;
    }
    return Status::Ok();
  }
  Batch View() const {
    return {inputs_.narrow(0, 0, used_), labels_.narrow(0, 0, used_), samples_};
  }

 private:
  int64_t floats_;
  int64_t used_ = 0;
  at::Tensor inputs_;
  at::Tensor labels_;
  std::vector<PlannedSample> samples_;
};

// Batches 0, 1, 2, ... prepared ahead by threads and handed out in order, in a ring of slots:
// batch number n lives in slot n mod slots.
class Prefetcher {
 public:
  // Plans a batch; called with growing numbers, never by two threads at once.
  using Planner = std::function<Plan(int64_t number)>;

  Prefetcher(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options,
             Planner planner)
      : dataset_(std::move(dataset)), planner_(std::move(planner)) {
    // One more than are kept ready: the one that the caller is using.
    for (int i = 0; i < options.prefetch + 1; ++i) {
      slots_.push_back({Slot(dataset_->info(), options.batch), Status::Ok(), false});
    }
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Work(); });
  }

  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Gives back the slot handed out before and waits for the next.
  Result<Batch> Next() {
    std::unique_lock lock(mutex_);
    if (taken_ > 0) {
      slots_[Place(taken_ - 1)].ready = false;
      ++released_;
      room_.notify_one();
    }
    Entry& entry = slots_[Place(taken_++)];
    ready_.wait(lock, [&] { return entry.ready; });
    if (!entry.status.ok()) return entry.status;
    return entry.slot.View();
  }

 private:
  struct Entry {
    Slot slot;
    Status status;
    bool ready;
  };

  size_t Place(int64_t number) const { return static_cast<size_t>(number) % slots_.size(); }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, [&] {
        return stopping_ || planned_ - released_ < static_cast<int64_t>(slots_.size());
      });
      if (stopping_) return;
      const int64_t number = planned_++;
      const Plan plan = planner_(number);
      Entry& entry = slots_[Place(number)];
      lock.unlock();
      Status status = entry.slot.Fill(*dataset_, plan);
      lock.lock();
      entry.status = std::move(status);
      entry.ready = true;
      ready_.notify_one();
    }
  }

  std::shared_ptr<const Dataset> dataset_;
  Planner planner_;
  std::mutex mutex_;
  std::condition_variable room_;   // a slot is free
  std::condition_variable ready_;  // a batch is ready
  std::vector<Entry> slots_;
  int64_t planned_ = 0;   // batches given to threads
  int64_t taken_ = 0;     // batches given to the caller
  int64_t released_ = 0;  // batches that the caller is done with
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class PrefetchingTrainLoader : public TrainLoader {
 public:
  PrefetchingTrainLoader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options,
                         LoaderPosition start, int64_t steps_per_epoch)
      : steps_per_epoch_(steps_per_epoch),
        order_(TrainOrder::Make(dataset->info().train_size, options, start)),
        prefetcher_(std::move(dataset), options, [this, augment = options.augment](int64_t) {
          return Plan{.augment = augment, .samples = order_->NextBatch()};
        }) {}

  int64_t steps_per_epoch() const override { return steps_per_epoch_; }
  Result<Batch> Next() override { return prefetcher_.Next(); }

 private:
  const int64_t steps_per_epoch_;
  std::unique_ptr<TrainOrder> order_;
  Prefetcher prefetcher_;  // last: its threads use order_
};

class PrefetchingTestLoader : public TestLoader {
 public:
  PrefetchingTestLoader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
      : dataset_(std::move(dataset)), options_(options) {
    const int64_t total = dataset_->info().test_size;
    first_ = total * options.rank / options.world_size;
    last_ = total * (options.rank + 1) / options.world_size;
  }

  // Threads live for one pass: most of a run is training.
  Result<std::optional<Batch>> Next() override {
    if (first_ + next_ >= last_) {
      prefetcher_.reset();
      return std::optional<Batch>();
    }
    if (!prefetcher_) {
      prefetcher_ = std::make_unique<Prefetcher>(
          dataset_, options_, [this](int64_t number) { return PlanBatch(number); });
    }
    EQ_ASSIGN_OR_RETURN(Batch batch, prefetcher_->Next());
    next_ += batch.labels.size(0);
    return std::optional<Batch>(std::move(batch));
  }
  void Rewind() override {
    prefetcher_.reset();
    next_ = 0;
  }

 private:
  // Past the end, batches are empty.
  Plan PlanBatch(int64_t number) const {
    Plan plan{.split = Split::kTest};
    const int64_t begin = first_ + number * options_.batch;
    for (int64_t i = begin; i < std::min(begin + options_.batch, last_); ++i) {
      plan.samples.push_back({.index = i});
    }
    return plan;
  }

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  int64_t first_ = 0;
  int64_t last_ = 0;
  int64_t next_ = 0;  // samples handed out
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace

Result<std::unique_ptr<TrainLoader>> TrainLoader::Make(std::shared_ptr<const Dataset> dataset,
                                                       const LoaderOptions& options,
                                                       LoaderPosition start) {
  EQ_RETURN_IF_ERROR(CheckOptions(options));
  if (!options.share.empty()) {
    EQ_ASSIGN_OR_RETURN(dataset, OwnShareOf(std::move(dataset), options.share));
  }
  const int64_t samples = options.share.empty() ? dataset->info().train_size : options.dealt;
  const int64_t steps = StepsPerEpoch(samples, options);
  if (steps < 1) {
    return InvalidArgument("the training set has " + std::to_string(samples) +
                           " samples, fewer than one batch of " +
                           std::to_string(options.batch) + " on each of " +
                           std::to_string(options.world_size) + " workers");
  }
  if (start.epoch < 0 || start.step < 0 || start.step >= steps) {
    return InvalidArgument("cannot start at step " + std::to_string(start.step) + " of epoch " +
                           std::to_string(start.epoch) + ": an epoch has " +
                           std::to_string(steps) + " steps");
  }
  return std::unique_ptr<TrainLoader>(
      std::make_unique<PrefetchingTrainLoader>(std::move(dataset), options, start, steps));
}

Result<std::unique_ptr<TestLoader>> TestLoader::Make(std::shared_ptr<const Dataset> dataset,
                                                     const LoaderOptions& options) {
  EQ_RETURN_IF_ERROR(CheckOptions(options));
  return std::unique_ptr<TestLoader>(
      std::make_unique<PrefetchingTestLoader>(std::move(dataset), options));
}

}  // namespace elastiquant
