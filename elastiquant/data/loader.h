// Loads batches for one worker of many, prepared ahead by a few threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"
#include "elastiquant/data/dataset.h"

namespace elastiquant {

// One sample of a training batch. How it is augmented is a function of the loader's seed, the
// pass and the index, which AugmentKey makes.
struct PlannedSample {
  int64_t index = 0;
  int64_t pass = 0;  // over the samples: the epoch, or the pass over a share
  StreamKey augment{};
};
StreamKey AugmentKey(uint64_t seed, int64_t pass, int64_t index);

// A batch, whose tensors are views of a buffer that the loader uses again: they are valid until
// the next call of Next() on the same loader, or its end.
struct Batch {
  // Images, fp32 [batch, channels, size, size] and channels-last in memory, or text, fp32
  // [batch, context + 1].
  at::Tensor inputs;
  at::Tensor labels;  // int64 [batch]
  // Of a training batch: which samples it has, in this order.
  std::vector<PlannedSample> samples = {};
  // What each sample counts for in the loss, fp32 [batch]. Loaders leave it undefined: each
  // counts for its part of the batch.
  at::Tensor weights = {};
};

// Where a training run stands in its data: `step` global batches of epoch `epoch` are done.
struct LoaderPosition {
  int64_t epoch = 0;
  int64_t step = 0;
};

struct LoaderOptions {
  int64_t batch = 32;  // samples of a worker in a step
  int rank = 0;
  int world_size = 1;
  uint64_t seed = 0;    // of the order and the augmentation
  bool augment = true;  // for training only
  int threads = 1;      // threads that prepare batches, at least 1
  int prefetch = 2;     // batches kept ready, at least 1

  // The samples of the training split that lie on this worker, each once, of the `dealt` that
  // lie on all workers together. If there are none, all workers read the whole split.
  std::vector<int64_t> share = {};
  int64_t dealt = 0;
};

// Returns how many global batches `samples` samples make.
inline int64_t StepsPerEpoch(int64_t samples, const LoaderOptions& options) {
  return samples / (options.batch * options.world_size);
}

// Gives training batches without end.
//
// Without shares each epoch is a permutation of the training split, a function of (seed, epoch)
// alone; step s takes the samples [s, s + 1) * batch * world_size of it, of which rank r has
// the r-th run of `batch`. What is left at the end of an epoch is dropped. In an epoch sample i
// of the split is augmented by a key made from (seed, epoch, i), so batches depend neither on
// threads nor on where the loader started.
//
// With shares a worker can read no other samples than its own. It makes one pass over them
// after the other, each a permutation that is a function of (seed, rank, pass) alone, and takes
// the next `batch` samples in each step. An epoch has as many steps as it would have without
// shares, if the split had `dealt` samples. So all workers take the same number of steps, in
// which small shares are read more often than large ones, and no sample of a share more often
// than another. A pass may end within an epoch, or within a batch. The keys of augmentation
// have the pass in place of the epoch.
class TrainLoader {
 public:
  // Fails with InvalidArgument if an option is out of range, if the split (with shares: what is
  // dealt) is smaller than one global batch, or if `start` is not a step of an epoch. It may be
  // any step of one.
  static Result<std::unique_ptr<TrainLoader>> Make(std::shared_ptr<const Dataset> dataset,
                                                   const LoaderOptions& options,
                                                   LoaderPosition start = {});
  virtual ~TrainLoader() = default;

  virtual int64_t steps_per_epoch() const = 0;
  // Waits until the next batch is ready. Fails as Dataset::Read does. The loader must be
  // discarded then: a batch is lost, so what follows is no more in the order promised above.
  virtual Result<Batch> Next() = 0;
};

// Passes over the test split without augmentation. The ranks' samples together are the whole
// split, each sample once. The last batch may be short; ranks may have different numbers of
// batches (or none), so counts must be added up across ranks after the pass, not in it.
class TestLoader {
 public:
  static Result<std::unique_ptr<TestLoader>> Make(std::shared_ptr<const Dataset> dataset,
                                                  const LoaderOptions& options);
  virtual ~TestLoader() = default;

  // Next returns the next batch, or nothing after the last one. Rewind starts the pass again.
  virtual Result<std::optional<Batch>> Next() = 0;
  virtual void Rewind() = 0;
};

}  // namespace elastiquant
