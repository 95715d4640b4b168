// The compressed all-reduce over flat gradient buckets: scatter-reduce, then all-gather, both
// compressed; or, for codecs that ask for it (Codec::exchange), one all-gather of what each
// worker encodes, a scatter-reduce of its coordinates or its integers whose sums are sent on
// exactly, or the first again of factors in place of gradients. Encoding of bucket k+1 overlaps
// the sending of bucket k and backward.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/exchange/chunk.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// A flat span of gradients, and how it travels.
struct GradientBucket {
  std::span<float>
      gradient;  // in: this worker's; out: the mean over workers, the same bits on all
  std::shared_ptr<const Codec> codec;
  std::string name;  // for messages: the layers it holds
  // Another way to the mean than the codec asks for. It cannot be kTwoPhase for a codec with
  // momentum or one that was made for shapes: their messages cannot be cut or encoded again.
  // kSparse and kSparseScatter are only for a codec that asks for kSparse, kIntegerSum for one
  // with shared_scale().
  std::optional<Exchange> exchange = std::nullopt;
  // Whether on_reduced makes it from the means of others. It may then be marked ready after
  // Finish() is called, and is not measured.
  bool derived = false;
  // Another codec for the means on their way back, for kTwoPhase only; null: `codec`. It must
  // remember the same.
  std::shared_ptr<const Codec> down = nullptr;
  // Other codecs under which any worker may send this bucket, and between which SetCodec
  // changes. Frames tell which codec made them, and receivers make room for the longest frame
  // of any; a codec that needs no more room than one of these may be used as if it stood here
  // (`dither` of any rate beside `dither`, a threshold of any value beside a threshold). All of
  // them must go the same way as `codec` and remember the same, and `codec` is one of them
  // unless it is the same on all workers. Buckets that go by kFactors or kIntegerSum can have
  // none.
  std::vector<std::shared_ptr<const Codec>> ladder = {};

  Exchange way() const { return exchange.value_or(codec->exchange()); }
  // Whether another codec goes the same way as `codec` and remembers the same.
  bool MayTravelUnder(const Codec& other) const {
    return exchange.value_or(other.exchange()) == way() &&
           other.StateFields() == codec->StateFields();
  }
};

// A frame of this worker's own, in a step that is measured. Valid during the call that tells of
// it.
struct MeasuredMessage {
  size_t bucket = 0;
  Chunk part;  // of the bucket
  // The codec whose bounds hold. Those for integer sums are on the errors of all workers
  // together.
  const Codec* codec = nullptr;
  std::span<const float> input;  // what was encoded, with what error feedback remembers
  std::span<const float> error;  // `input`, less what the frame decodes to
  std::span<const uint8_t> frame;
};

inline constexpr uint32_t kMaxChannels = 64;

struct ReducerOptions {
  uint64_t seed = 0;
  int threads = 1;  // codec threads
  // By rank, how much each worker counts for in the mean. They are divided by their sum, and
  // must be the same on all workers. If there are none, all workers count the same. Buckets
  // that go by kIntegerSum need that.
  std::vector<double> weights = {};
  // Reducers of one communicator whose steps overlap in time must have channels apart, from 0
  // to kMaxChannels - 1, the same on all workers: it is a part of their messages' tags.
  uint32_t channel = 0;
  uint64_t measure_every = 0;  // steps between those in which own frames are measured; 0: never
  // Called by any thread of the reducer for each frame that is measured, those of an owner's
  // means among them, but not for factors.
  std::function<void(const MeasuredMessage&)> on_measured = nullptr;
  // Called by a thread of the reducer when it is done with a bucket. That is in index order,
  // but buckets averaged by factors come last. `is_mean` is false if some worker could not
  // encode the bucket.
  std::function<void(size_t bucket, bool is_mean)> on_reduced = nullptr;
};

// Sums over the steps since the last TakeStats().
struct ReducerStats {
  double encode_seconds = 0;
  double decode_seconds = 0;
  double wait_seconds = 0;   // Finish() blocked for so long: backward did not hide it
  uint64_t coordinates = 0;  // coordinates reduced
  // The error of own frames against what they encode (with error feedback: the gradient and
  // what is remembered), in the steps that are measured.
  double squared_error = 0;
  double squared_norm = 0;  // of what these frames encode
  // The parts of both that are of buckets in a metric (MarkReady). The rest is in other units.
  double squared_error_in_metric = 0;
  double squared_norm_in_metric = 0;

  ReducerStats& operator+=(const ReducerStats& other);
};

// What came of one step.
struct StepOutcome {
  bool skipped = false;  // some worker could not encode: no bucket may be used
  std::string reason;    // "worker 2: NaN in bucket 3 (layer3.0.conv1.weight) at 17"
};

// Averages buckets over the workers, step by step. `layers` and the collectives of `ddp` use
// it.
class GradientReducer {
 public:
  static Result<std::unique_ptr<GradientReducer>> Create(Communicator* comm,
                                                         std::vector<GradientBucket> buckets,
                                                         const ReducerOptions& options);
  virtual ~GradientReducer() = default;

  // A step is BeginStep, then MarkReady for every bucket, then Finish. Buckets may be marked in
  // any order, but the same order on every worker overlaps best. They are reduced in index
  // order.
  virtual Status BeginStep(uint64_t step) = 0;
  // Thread-safe, returns at once. `metric` names the metric that the bucket's values have been
  // converted to (layers/metric.h); 0 means that they are gradients as they are. Workers that
  // give different ones fail in Finish.
  virtual Status MarkReady(size_t bucket, uint16_t metric = 0) = 0;
  virtual Result<StepOutcome> Finish() = 0;  // blocks until all buckets hold the mean

  // Makes this worker encode the bucket under another codec from the next step on, which
  // remembers the same and goes the same way. One of the bucket's ladder, or one that needs no
  // more room, may be this worker's alone; any other must be the same on all workers. Must be
  // called between steps.
  virtual Status SetCodec(size_t bucket, std::shared_ptr<const Codec> codec) = 0;

  // Returns what the bucket's codec remembers on this worker: a vector of the bucket's length
  // for each of Codec::StateFields(). Must be read and written between steps only. In the chunk
  // that this worker owns it is what the mean lost on its way back, in the mean's units;
  // elsewhere it is what the worker's own gradient lost.
  virtual std::vector<std::span<float>> Memory(size_t bucket) = 0;
  virtual Chunk OwnedChunk(size_t bucket) const = 0;  // empty unless kTwoPhase

  // Makes codecs remember what they would if the last step had ended the other way: after one
  // that came to its end, what was before it; after one that failed, what is after it, which is
  // true if any worker has its means, because this one has then encoded all that they are made
  // of. A second call takes the first back. Must be called after Finish, and not if the outcome
  // was skipped. Returns false, and changes nothing, if it cannot be known: a memory of factors
  // is made of the mean.
  virtual bool FlipMemory() = 0;

  virtual ReducerStats TakeStats() = 0;
};

}  // namespace elastiquant
