// Writes gradients of a run to files, so that codecs can be tried and analysed on them
// afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/train/flat_gradients.h"

namespace elastiquant {

// Returns the steps that text such as "1,390,50%,100%" names in a run of total_steps. They are
// counted from 1, as metrics.jsonl counts them, or given in per cent of the run, rounded up to
// a step (0% is step 1). Fails with InvalidArgument, which names the word and what is valid.
Result<std::set<int64_t>> ParseDumpSteps(std::string_view text, int64_t total_steps);

// Collects one worker's gradient, bucket by bucket as backward completes it and before the
// all-reduce overwrites it with the mean, and writes it as one vector in the order of the
// model's parameters.
class GradientDump {
 public:
  GradientDump(std::filesystem::path folder, std::set<int64_t> steps,
               const std::vector<NamedTensor>& parameters);

  // Makes the folder and writes layers.json: a list of {name, shape, offset, elements}, in the
  // order of the parameters; offset counts elements of the vector.
  Status WriteLayers() const;

  // Whether Capture is to be called in this step.
  bool Due(int64_t step) const { return steps_.contains(step); }
  void Capture(const PlannedBucket& bucket, std::span<const float> gradient);
  // Writes folder/gradient-STEP.npy (six digits) atomically.
  Status Write(int64_t step) const;

 private:
  struct Layer {
    std::string name;
    std::vector<int64_t> shape;
    size_t offset;
    size_t elements;
  };

  std::filesystem::path folder_;
  std::set<int64_t> steps_;
  std::vector<Layer> layers_;
  size_t front_bytes_;          // before the elements
  std::vector<uint8_t> bytes_;  // the file: NpyFront, then the elements
};

// Returns the gradients that a folder holds, in the order of their steps. There is none if it
// cannot be read.
std::vector<std::filesystem::path> GradientFilesIn(const std::filesystem::path& folder);

// Removes the files of an earlier run from `folder`, if there is one.
void RemoveGradientDumps(const std::filesystem::path& folder);

}  // namespace elastiquant
