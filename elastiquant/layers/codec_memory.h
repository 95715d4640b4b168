// What the codecs of a run remember on one worker, to and from that worker's checkpoint. It is
// kept by parameter, so that it outlives a change of bucket size.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/collective/gradient_reducer.h"
#include "elastiquant/layers/bucket_plan.h"

namespace elastiquant {

// Named bytes, as a checkpoint has them.
using Sections = std::map<std::string, std::vector<uint8_t>>;

// Of each field that a bucket's codec remembers (Codec::StateFields()) and each of its
// parameters there are two sections:
//   "memory/FIELD/PARAMETER"       what the worker's own gradient lost;
//   "mean-memory/FIELD/PARAMETER"  what the mean lost, zero where others own it.
// A coordinate that changes its owner with the layout takes its memory along: what a mean lost
// counts for as many workers as there are.
class CodecMemory {
 public:
  // fields: by bucket. plan, shapes and reducer must outlive it.
  CodecMemory(const BucketPlan& plan, std::span<const ParameterShape> shapes,
              std::vector<std::vector<std::string>> fields, int world_size,
              GradientReducer* reducer);

  void Save(Sections* sections) const;
  // Errors: CorruptData naming the section that is missing or has another size.
  Status Load(const Sections& sections);

 private:
  const BucketPlan& plan_;
  std::span<const ParameterShape> shapes_;
  const std::vector<std::vector<std::string>> fields_;
  const float world_size_;
  GradientReducer* const reducer_;
};

}  // namespace elastiquant
