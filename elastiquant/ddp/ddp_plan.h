// How the buckets of DistributedDataParallel (DDP) are cut into the reducer's. DDP packs
// whatever backward finishes together, 25 MiB at a time; ours hold tensors of one codec, and
// are small enough that one is encoded while another is on its way.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/bucket_plan.h"

namespace elastiquant {

struct DdpParameter {
  ParameterShape shape;
  std::string codec;  // spec
};

// By DDP bucket, the parameters (their indices) one behind the other in its flat buffer.
using DdpLayout = std::vector<std::vector<size_t>>;

struct DdpPlan {
  // A bucket lies within one DDP bucket, in their order; within it, in that in which backward
  // fills them, if it makes gradients in DDP's order.
  BucketPlan plan;
  std::vector<std::string> codecs;         // by bucket
  std::vector<size_t> ddp_bucket;          // by bucket: the one it is part of
  std::vector<std::vector<size_t>> parts;  // by DDP bucket: its buckets
  std::vector<size_t> position;    // by parameter: its offset in the buffer of its DDP bucket
  std::vector<BucketPlace> place;  // by parameter
};

// A bucket closes once it has bucket_elements; larger tensors stay whole. What backward makes
// last, up to an eighth of that, has buckets of its own, as nothing hides the time that they
// take. Buckets of lossless codecs are marked exact. Errors: InvalidArgument for a bad codec,
// an unknown parameter, one that comes twice, or bucket_elements of 0.
Result<DdpPlan> PlanDdp(const DdpLayout& layout, std::span<const DdpParameter> parameters,
                        size_t bucket_elements);

}  // namespace elastiquant
