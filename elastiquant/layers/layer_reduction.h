// Averages a model's gradients over the workers. It has flat buckets of layers, each under its
// codec and by its exchange; what the codecs remember of each layer; and the certificate of
// what quantisation did to it. `train` and the DDP hook stand on this one class.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/exchange/exchange_choice.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/layers/certificate.h"
#include "elastiquant/layers/codec_memory.h"
#include "elastiquant/layers/metric.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// The codecs as they are now, with fitted levels and for the epoch. The key is the spec by
// which a codec was asked for.
using CodecsBySpec = std::map<std::string, std::shared_ptr<const Codec>>;

struct LayerBuckets {
  const BucketPlan& plan;  // must outlive the reduction, as must what the spans show
  std::span<const ParameterShape> shapes;
  std::vector<std::span<float>> gradients;  // by bucket
  std::vector<std::string> specs;           // by bucket: a key of the codecs
};

// Who converts gradients to the metric and back.
enum class Conversion : uint8_t {
  kNone,         // there is no metric, and SetMetric must not be called
  kByReduction,  // the reduction, where they lie
  kByOwner       // the owner of the buckets, as it copies values there and away (step_metric)
};

struct LayerReductionOptions {
  ReducerOptions reducer;  // its on_measured is called after the certificate's
  // Chooses how the mean of a bucket comes about. The codec is not made for its shapes yet.
  std::function<Result<ExchangeChoice>(size_t bucket, std::shared_ptr<const Codec> codec)>
      choose;
  // Returns other codecs under which any worker may send a bucket (GradientBucket::ladder), the
  // same on all workers. Null: there are none.
  std::function<std::vector<std::shared_ptr<const Codec>>(size_t bucket)> ladder = nullptr;
  Conversion conversion = Conversion::kNone;
  // Where measured messages go, and which bucket of it is the reduction's first, if several
  // reductions have one certificate together. Null: the reduction's own.
  Certificate* certificate = nullptr;
  size_t first_bucket = 0;
  bool has_uncompressed = false;  // whether BeginStep may be asked to compress nothing
  // Called by MarkReady before a bucket is sent, with its values in the metric, which are
  // nowhere else yet. May be null.
  std::function<void(size_t bucket)> before_sent = nullptr;
  // Called by a thread of the reducer when a bucket holds its mean, in the metric as well, but
  // not in uncompressed steps. May be null.
  std::function<void(size_t bucket)> on_mean = nullptr;
};

// Not thread-safe. MarkReady may be called by another thread than the rest, but only by one.
class LayerReduction {
 public:
  // Collective. Fails as options.choose, CodecForShapes and GradientReducer::Create do.
  static Result<std::unique_ptr<LayerReduction>> Make(Communicator* comm, LayerBuckets buckets,
                                                      const CodecsBySpec& codecs,
                                                      LayerReductionOptions options);

  // Sets the second moments by which gradients are compressed in the metric of an adaptive
  // optimiser (Metric::Set). Must be called between steps, and only with a conversion.
  Status SetMetric(SecondMoments moments) { return metric_.Set(std::move(moments)); }

  // A step is BeginStep, MarkReady of each bucket, Finish (see GradientReducer). An
  // uncompressed one averages the buckets as fp32 and as they are, and leaves alone what codecs
  // remember. All workers must ask for it alike, and only with options.has_uncompressed.
  Status BeginStep(uint64_t step, bool uncompressed = false);
  Status MarkReady(size_t bucket);
  // Returns the metric by whose CopyIn and CopyOut the owner of the buckets shall fill and read
  // them in this step, or null if values are to be as they are.
  Metric* step_metric() { return is_in_metric_ ? &metric_ : nullptr; }
  Result<StepOutcome> Finish() { return active_->Finish(); }

  // A step whose gradients are sent otherwise, and exactly, is BeginExactStep, Flush of each
  // bucket and, if all had a mean, CommitFlushed. Flush adds to a bucket's gradient all that
  // its codec remembers of it (SendExactly).
  void BeginExactStep();
  // Whether anything is remembered that such a step would have to send.
  bool HoldsBack() const;
  bool flushes() const { return flushes_; }  // whether anything may be remembered in this step
  bool remembers(size_t bucket) { return !reducer_->Memory(bucket).empty(); }
  void Flush(size_t bucket);
  void CommitFlushed();

  // Makes buckets travel under these codecs from now on. Must be called between steps, and be
  // given the same on all workers.
  Status UseCodecs(const CodecsBySpec& codecs);

  // Makes this worker alone send a bucket under another codec from now on, one that its ladder
  // has room for. Must be called between steps.
  Status SetOwnCodec(size_t bucket, std::shared_ptr<const Codec> codec) {
    return reducer_->SetCodec(bucket, std::move(codec));
  }
  // Returns what the bucket's codec remembers (GradientReducer::Memory). May be read between
  // steps, and in before_sent for the bucket that is to be sent.
  std::vector<std::span<float>> Remembered(size_t bucket) { return reducer_->Memory(bucket); }

  // Converts what is remembered of a parameter to a new unit of its gradient
  // (CodecMemory::Rescale). Must be called between steps.
  void RescaleMemory(size_t parameter, double factor) { memory_->Rescale(parameter, factor); }
  // KeepMemory keeps a copy of what is remembered of a parameter, as it was before the step
  // that has begun. KeepMemoryOfZeros does so in every step for all parameters whose gradient
  // is zero on this worker.
  void KeepMemory(size_t parameter) { kept_[parameter] = memory_->Copy(parameter); }
  void KeepMemoryOfZeros() { keep_zeros_ = true; }
  // Makes the memory of a parameter the copy, if there is one. Must be called after that step
  // if what was sent of the parameter has not been applied.
  void RestoreMemory(size_t parameter);
  void SaveMemory(Sections* sections) const { memory_->Save(sections); }
  // Fails as CodecMemory::Check does, and has changed nothing then. CheckMemory makes these
  // checks alone.
  Status LoadMemory(const Sections& sections);
  Status CheckMemory(const Sections& sections) const { return memory_->CheckAll(sections); }
  bool FlipMemory();  // as GradientReducer has it, after steps that compress

  // Errors are of what was sent in a metric, if anything was, and else of all.
  ReducerStats TakeStats();
  Certificate& certificate() { return certificate_; }

 private:
  LayerReduction(Communicator* comm, LayerBuckets buckets, const CodecsBySpec& codecs,
                 LayerReductionOptions options);

  Status MakeReducer();
  Status MakeUncompressed();
  std::vector<bool> Lossy() const;
  double OwnWeight() const;
  Result<ExchangeChoice> ChoiceOf(size_t bucket, const CodecsBySpec& codecs) const;
  void KeepZeros(size_t bucket);

  Communicator* const comm_;
  const LayerBuckets buckets_;
  const LayerReductionOptions options_;
  Certificate certificate_;
  CodecsBySpec codecs_;  // in use
  Metric metric_;        // in which buckets are sent
  // These are destroyed before what their threads use.
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<GradientReducer> uncompressed_;  // with options.has_uncompressed
  GradientReducer* active_ = nullptr;              // the one of this step
  std::unique_ptr<CodecMemory> memory_;
  // By bucket, in a step that is sent exactly: what its codec shall remember, by field.
  std::vector<std::vector<std::vector<float>>> flushed_;
  bool flushes_ = false;
  bool is_flushed_ = false;  // whether the last exact step has sent all that was remembered
  bool keep_zeros_ = false;
  bool is_in_metric_ = false;                  // whether the owner converts in this step
  std::map<size_t, std::vector<float>> kept_;  // by parameter
};

}  // namespace elastiquant
