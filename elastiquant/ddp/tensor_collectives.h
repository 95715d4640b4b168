// Runs compressed collectives on single tensors, outside DDP.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// Connects the workers of one group. All must make the same calls in the same order, from one
// thread at a time. After an error other than NonFinite and InvalidArgument no further call
// works.
class TensorCollectives {
 public:
  // Collective. Fails with InvalidArgument if `threads`, the number of codec threads, is less
  // than 1, and as Communicator::Connect does.
  static Result<std::unique_ptr<TensorCollectives>> Create(CommunicatorOptions options,
                                                           int threads);

  // Makes `values` the mean over the workers, with the same bits on all. Fails with
  // InvalidArgument if the codec remembers from message to message, or, on all workers, if they
  // give other lengths, codecs or seeds; with NonFinite, on all, if some worker's values cannot
  // be encoded because of a NaN, an infinity or their size; and with Unavailable for a lost
  // worker.
  Status Mean(std::span<float> values, const std::shared_ptr<const Codec>& codec,
              uint64_t seed);

  // Returns what every worker's values decode to, by rank, this worker's too. The bits are the
  // same on all. Fails as Mean does.
  Result<std::vector<std::vector<float>>> Gather(std::span<const float> values,
                                                 const Codec& codec, uint64_t seed);

  // Says why this worker will make no more calls: the others are told if they wait for it.
  void SetFarewell(std::string why) { comm_->SetFarewell(std::move(why)); }
  // Says that this worker cannot go on: all others stop, and so does a call under way. May be
  // called by any thread.
  void Abort(const Status& why) { comm_->Abort(why); }

  int world_size() const { return comm_->world_size(); }

 private:
  // The reducer of tensors of one length and codec, and its memory.
  struct Reduction {
    std::vector<float> values;
    std::unique_ptr<GradientReducer> reducer;
    uint64_t last_used = 0;
  };

  TensorCollectives(std::unique_ptr<Communicator> comm, int threads);
  Status CheckAlike(uint64_t fingerprint);
  Result<Reduction*> ReductionFor(size_t size, const std::shared_ptr<const Codec>& codec,
                                  uint64_t seed);
  Status EncodeOrNotice(std::span<const float> values, const Codec& codec, uint64_t seed,
                        std::vector<uint8_t>* frame);

  std::unique_ptr<Communicator> comm_;
  const int threads_;
  uint64_t calls_ = 0;
  Workspace work_;
  std::map<std::pair<size_t, std::string>, Reduction> reductions_;
};

}  // namespace elastiquant
