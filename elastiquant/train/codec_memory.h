// What the codecs of a run remember on one worker, to and from that worker's checkpoint. It is
// kept by parameter, so that it outlives a change of bucket size.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/collective/gradient_reducer.h"
#include "elastiquant/train/bucket_plan.h"
#include "elastiquant/train/checkpoint.h"

namespace elastiquant {

// The buckets of a run that are not exact all have one codec, which remembers `fields`
// (Codec::StateFields()). Of each field and parameter there are two sections:
//   "memory/FIELD/PARAMETER"       what the worker's own gradient lost;
//   "mean-memory/FIELD/PARAMETER"  what the mean lost, zero where others own it.
// A coordinate that changes its owner with the layout takes its memory along: what a mean lost
// counts for as many workers as there are.
class CodecMemory {
 public:
  // plan, shapes and reducer must outlive it.
  CodecMemory(const BucketPlan& plan, std::span<const ParameterShape> shapes,
              std::vector<std::string> fields, int world_size, GradientReducer* reducer);

  void Save(Checkpoint* checkpoint) const;
  // Errors: CorruptData naming the section that is missing or has another size.
  Status Load(const Checkpoint& checkpoint);

 private:
  const BucketPlan& plan_;
  std::span<const ParameterShape> shapes_;
  const std::vector<std::string> fields_;
  const float world_size_;
  GradientReducer* const reducer_;
};

}  // namespace elastiquant
