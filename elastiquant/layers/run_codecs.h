// The codecs of a run. They change as it goes on: some send more in the first epochs, and the
// levels of some are fitted to the gradients now and then.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "elastiquant/layers/layer_reduction.h"
#include "elastiquant/layers/level_adapter.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// All workers must make the same calls, each from one thread at a time.
class RunCodecs {
 public:
  // `asked` are the codecs that the run was asked to use, by the names that buckets have for
  // them (LayerBuckets::specs). See LevelAdapter for adapt_every. `comm` must outlive the
  // steps.
  RunCodecs(CodecsBySpec asked, Communicator* comm, int64_t adapt_every);

  const CodecsBySpec& asked() const { return asked_; }
  // Returns the codecs with fitted levels, as they are in this epoch.
  CodecsBySpec Now() const;
  // Sets the epoch, counted from 0. Returns whether any codec has become another by it.
  bool SetEpoch(int epoch);
  int epoch() const { return epoch_; }

  // Returns whether levels will be fitted after step `step`, counted from 1.
  bool AdaptsAfter(int64_t step) const;
  // Takes a bucket of that step, before its mean overwrites it, if the levels of its codec will
  // be fitted to it. Threads may call it at once for buckets of different codecs.
  void Capture(const std::string& name, int64_t step, std::span<const float> bucket);
  // Collective, after step `step`: fits the levels that are due. Returns whether there are any.
  Result<bool> Adapt(int64_t step);
  // Drops what was captured, because the step was skipped.
  void Forget();

  // Returns the specs of the codecs whose levels can be fitted, as they are now: for
  // checkpoints.
  std::map<std::string, std::string> Fitted() const;
  // Takes up what Fitted returned. Fails with kCorruptData, and changes nothing, unless there
  // is a valid spec for each of these codecs.
  Status UseFitted(const std::map<std::string, std::string>& specs);

 private:
  const CodecsBySpec asked_;
  CodecsBySpec fitted_;
  std::map<std::string, LevelAdapter> adapters_;  // of those that adapt
  int epoch_ = 0;
};

}  // namespace elastiquant
